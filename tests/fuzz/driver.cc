// Runs a fuzz target without libFuzzer: the corpus, then seeded mutations of it. A crash names the seed and
// the run.
//   <target> [--corpus DIR] [--seed N] [--runs N] [--only-run I] [--max-bytes N]
//   <target> --write-corpus DIR | FILE...
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutator.h"

namespace {

char g_where[160] = "before the first run\n";

void OnCrash(int signal) {
  (void)!write(2, "crashed: ", 9);
  (void)!write(2, g_where, std::strlen(g_where));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void RunOne(const std::string& input) {
  // A copy of exactly the right size, so that AddressSanitizer sees a read behind its end; as with libFuzzer
  // an empty one is somewhere, too.
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[input.size()]);
  std::copy(input.begin(), input.end(), exact.get());
  LLVMFuzzerTestOneInput(exact.get(), input.size());
}

struct Arguments {
  std::vector<std::string> files;
  std::string corpus, write_corpus;
  uint64_t seed = 1;
  uint64_t runs = 20000;
  uint64_t only_run = UINT64_MAX;
  size_t max_bytes = 1 << 16;
};

bool Parse(int argc, char** argv, Arguments& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name.rfind("--", 0) != 0) {
      out.files.push_back(name);
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (name == "--corpus") {
      out.corpus = value;
    } else if (name == "--write-corpus") {
      out.write_corpus = value;
    } else if (name == "--seed") {
      out.seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--runs") {
      out.runs = std::strtoull(value, nullptr, 10);
    } else if (name == "--only-run") {
      out.only_run = std::strtoull(value, nullptr, 10);
    } else if (name == "--max-bytes") {
      out.max_bytes = std::strtoull(value, nullptr, 10);
    } else {
      return false;
    }
  }
  return true;
}

void WriteCorpus(const std::string& dir) {
  if (cistern::FuzzSeeds == nullptr) return;
  std::filesystem::create_directories(dir);
  cistern::FuzzSeeds([&](const std::string& name, const std::string& bytes) {
    std::ofstream(std::filesystem::path(dir) / name, std::ios::binary) << bytes;
  });
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__)
// AddressSanitizer counts malloc as well, and names the caller.
extern "C" const char* __asan_default_options() {
  static_assert(cistern::kFuzzAllocationMibMax == 32);  // It is asked before anything may be allocated.
  return "max_allocation_size_mb=32";
}
#else
void* operator new(size_t bytes) {
  if (bytes > cistern::kFuzzAllocationMibMax << 20) {
    std::fprintf(stderr, "one allocation of %zu bytes\n", bytes);
    std::abort();
  }
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

int main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, arguments)) {
    std::fprintf(
        stderr,
        "usage: %s [--corpus DIR] [--seed N] [--runs N] [--only-run I] | --write-corpus DIR | FILE...\n",
        argv[0]);
    return 2;
  }
  if (!arguments.write_corpus.empty()) {
    WriteCorpus(arguments.write_corpus);
    return 0;
  }
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) std::signal(signal, OnCrash);
  for (const std::string& file : arguments.files) {
    std::snprintf(g_where, sizeof g_where, "file %.140s\n", file.c_str());
    RunOne(ReadFile(file));
  }
  if (!arguments.files.empty()) return 0;

  std::vector<std::string> corpus;
  if (cistern::FuzzSeeds != nullptr) {
    cistern::FuzzSeeds([&](const std::string&, const std::string& bytes) { corpus.push_back(bytes); });
  }
  std::vector<std::filesystem::path> paths;
  if (!arguments.corpus.empty() && std::filesystem::exists(arguments.corpus)) {
    for (const auto& entry : std::filesystem::directory_iterator(arguments.corpus))
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());  // A folder's own order differs between machines.
  for (const auto& path : paths) corpus.push_back(ReadFile(path));
  std::printf("seed %lu, %zu corpus inputs, %lu runs\n", arguments.seed, corpus.size(), arguments.runs);
  for (size_t i = 0; i < corpus.size(); ++i) {
    std::snprintf(g_where, sizeof g_where, "corpus input %zu\n", i);
    RunOne(corpus[i]);
  }
  const cistern::Mutator mutator(corpus, arguments.max_bytes);
  const bool one = arguments.only_run != UINT64_MAX;
  for (uint64_t run = one ? arguments.only_run : 0; run < arguments.runs || one; ++run) {
    std::snprintf(g_where, sizeof g_where, "again with: %.80s --seed %lu --only-run %lu\n", argv[0],
                  arguments.seed, run);
    cistern::Random random(arguments.seed * 0x9e3779b97f4a7c15 + run);
    RunOne(mutator.Draw(random));
    if (one) break;
  }
  return 0;
}
