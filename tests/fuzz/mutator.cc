#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <cstring>

namespace cistern {
namespace {

// Values at which length and count checks tip over.
constexpr uint64_t kEdges[] = {0,
                               1,
                               0x7f,
                               0x80,
                               0xff,
                               0x7fff,
                               0xffff,
                               0x10000,
                               0x3fffff,
                               0x400000,
                               0x400001,
                               0x7fffffff,
                               0x80000000,
                               0xffffffff,
                               0x100000000,
                               0x7fffffffffffffff,
                               0x8000000000000000,
                               0xffffffffffffffff};
constexpr size_t kEdgeCount = sizeof kEdges / sizeof kEdges[0];

}  // namespace

std::string Mutator::Draw(Random& random) const {
  std::string input;
  if (!corpus_.empty() && !random.Chance(0.02)) {
    input = corpus_[random.Below(corpus_.size())];
  } else {
    input.resize(random.Below(200));
    for (char& c : input) c = static_cast<char>(random.Next());
  }
  const uint64_t changes = 1 + random.Below(random.Chance(0.2) ? 32 : 4);
  for (uint64_t i = 0; i < changes; ++i) Change(random, input);
  if (input.size() > bytes_max_) input.resize(bytes_max_);
  return input;
}

void Mutator::Overwrite(Random& random, std::string& input) const {
  const size_t width = size_t{1} << random.Below(4);
  if (input.size() < width) return;
  const size_t at = random.Below(input.size() - width + 1);
  uint64_t value = 0;
  std::memcpy(&value, input.data() + at, width);
  switch (random.Below(3)) {
    case 0:
      value = kEdges[random.Below(kEdgeCount)];
      break;
    case 1:
      value += random.Below(9) - 4;
      break;
    default:
      value = random.Chance(0.5) ? input.size() : random.Next();
      break;
  }
  std::memcpy(input.data() + at, &value, width);
}

void Mutator::Change(Random& random, std::string& input) const {
  const size_t at = input.empty() ? 0 : random.Below(input.size());
  const size_t length = input.empty() ? 0 : 1 + random.Below(std::min<size_t>(input.size() - at, 64));
  switch (random.Below(8)) {
    case 0:
      if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << random.Below(8)));
      break;
    case 1:
      if (!input.empty()) input[at] = static_cast<char>(random.Next());
      break;
    case 2:
    case 3:
      Overwrite(random, input);
      break;
    case 4:
      input.erase(at, length);
      break;
    case 5: {
      const std::string copy = input.substr(at, length);
      input.insert(input.empty() ? 0 : random.Below(input.size()), copy);
      break;
    }
    case 6:
      input.resize(random.Chance(0.5) ? at : input.size() + random.Below(64),
                   static_cast<char>(random.Next()));
      break;
    default:
      if (!corpus_.empty()) {
        const std::string& other = corpus_[random.Below(corpus_.size())];
        const size_t cut = other.empty() ? 0 : random.Below(other.size());
        input = input.substr(0, at) + other.substr(cut);
      }
      break;
  }
}

}  // namespace cistern
