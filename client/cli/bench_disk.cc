#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

// lint: allow(room) because the CLI links what it shows: the node's own code for the node's own files.
#include "cache_node/disk/log_probe.h"
#include "client/cli/bench.h"
#include "client/cli/bench_cluster.h"
#include "client/cli/bench_memory.h"
#include "client/cli/fio_limit.h"
#include "core/cpu_time.h"
#include "core/size.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint64_t kLogBytes = uint64_t{2} << 30;
constexpr uint64_t kReadDataBytes = uint64_t{1} << 30;
constexpr uint32_t kWriteDepth = 8;  // Batches that the log has under way.

class DiskWriteOp final : public BenchOp {
 public:
  DiskWriteOp(LogProbe& probe, uint64_t size, uint32_t batch) : probe_(probe), size_(size), batch_(batch) {}
  BenchStep Step() override {
    for (uint32_t i = 0; i < batch_; ++i) {
      if (!probe_.Write().ok()) return {.ok = false};
    }
    return {.ok = true, .bytes = size_ * batch_, .items = batch_};
  }
  // Twice the log: then extents are written again, as in a node that has been up for long.
  uint64_t WarmSteps() const override { return 2 * kLogBytes / (size_ * batch_); }

 private:
  LogProbe& probe_;
  const uint64_t size_;
  const uint32_t batch_;
};

class DiskReadOp final : public BenchOp {
 public:
  DiskReadOp(LogProbe& probe, const PrefaultedMemory& memory, uint64_t size, uint32_t batch)
      : probe_(probe), memory_(memory), size_(size), batch_(batch) {}
  BenchStep Step() override {
    for (uint32_t i = 0; i < batch_; ++i) {
      at_ = at_ + 2 * size_ <= memory_.bytes() ? at_ + size_ : 0;
      if (!probe_.Read({.data = memory_.data() + at_, .bytes = size_}).ok()) return {.ok = false};
    }
    return {.ok = true, .bytes = size_ * batch_, .items = batch_};
  }
  // fio begins each of its slices with nothing under way, too.
  void Prepare(double /*seconds*/) override { probe_.EndReads(); }

 private:
  LogProbe& probe_;
  const PrefaultedMemory& memory_;
  const uint64_t size_;
  const uint32_t batch_;
  uint64_t at_ = 0;
};

// A folder for the measurement; removed with all in it.
struct Scratch {
  explicit Scratch(const std::string& dir) {
    path = dir + "/cistern-bench-disk-XXXXXX";
    made = mkdtemp(path.data()) != nullptr;
  }
  ~Scratch() {
    std::error_code ignored;
    if (made) std::filesystem::remove_all(path, ignored);
  }
  std::string path;
  bool made = false;
};

}  // namespace

absl::StatusOr<BenchReport> BenchDisk(const CliOptions& options) {
  const BenchOptions& bench = options.bench;
  const Scratch scratch(bench.dir);
  if (!scratch.made) return absl::UnavailableError("cannot write to " + bench.dir + "; give another --dir");
  CISTERN_ASSIGN_OR_RETURN(
      const std::unique_ptr<LogProbe> probe,
      LogProbe::Open(scratch.path + "/log", static_cast<uint32_t>(bench.size_bytes), kLogBytes));
  const bool write = bench.rw == "write";
  BenchReport report;
  BenchLimit limit;
  const auto measure_limit = [&](std::vector<std::string> files) -> absl::Status {
    if (!bench.limit) return absl::OkStatus();
    CISTERN_ASSIGN_OR_RETURN(limit, FioLimit({.folder = scratch.path,
                                              .files = std::move(files),
                                              .write = write,
                                              .size = bench.size_bytes,
                                              .depth = write ? kWriteDepth : probe->depth()}));
    return absl::OkStatus();
  };
  if (write) {
    CISTERN_RETURN_IF_ERROR(measure_limit({}));
    DiskWriteOp op(*probe, bench.size_bytes, bench.batch);
    report.figures = RunSlices(op, limit, bench.seconds, ProcessCpuSeconds);
    CISTERN_RETURN_IF_ERROR(probe->Settle());
  } else {
    for (uint64_t bytes = 0; bytes < kReadDataBytes; bytes += bench.size_bytes)
      CISTERN_RETURN_IF_ERROR(probe->Write());
    CISTERN_RETURN_IF_ERROR(probe->Settle());
    const PrefaultedMemory memory(std::max(kBenchMemoryBytes, bench.size_bytes));
    if (memory.data() == nullptr)
      return absl::ResourceExhaustedError("this machine has too little memory left");
    CISTERN_RETURN_IF_ERROR(measure_limit(probe->FullFiles()));
    DiskReadOp op(*probe, memory, bench.size_bytes, bench.batch);
    report.figures = RunSlices(op, limit, bench.seconds, ProcessCpuSeconds);
  }
  report.limit_name = limit.name;
  report.path = probe->Describe();
  return report;
}

}  // namespace cistern
