#include "core/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "core/testing/traces.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A file in the test's own folder, gone at the end.
class TraceReaderTest : public ::testing::Test {
 protected:
  TraceReaderTest() {
    std::string folder = (std::filesystem::temp_directory_path() / "cistern_trace_XXXXXX").string();
    folder_ = ::mkdtemp(folder.data());
  }
  ~TraceReaderTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& text) {
    const std::string path = folder_ / "trace";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string Compress(const std::string& text) {
    std::string out(ZSTD_compressBound(text.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
    return out;
  }
  // Reads a file to its end.
  void Read(const std::string& path) {
    auto reader = TraceReader::Open(path);
    ASSERT_TRUE(reader.ok()) << reader.status();
    const auto note = [this](uint64_t line, std::string_view why) {
      broken_.push_back(std::to_string(line) + ": " + std::string(why));
    };
    for (TraceRequest request; (*reader)->Next(request, note);) requests_.push_back(request);
    status_ = (*reader)->status();
  }

  std::filesystem::path folder_;
  std::vector<TraceRequest> requests_;
  std::vector<std::string> broken_;
  absl::Status status_;
};

TEST_F(TraceReaderTest, ReadsMooncakeLines) {
  Read(
      Write("{\"timestamp\": 5, \"input_length\": 1030, \"output_length\": 7, \"hash_ids\": [0, 1, 46]}\n"
            "{\"hash_ids\":[],\"timestamp\":6.5,\"session\":3,\"extra\":{\"a\":[1,\"}\\\"\",null,-1e3]}}"));
  ASSERT_EQ(requests_.size(), 2u);
  EXPECT_THAT(broken_, IsEmpty());
  EXPECT_EQ(requests_[0].line, 1u);
  EXPECT_EQ(requests_[0].timestamp_ms, 5);
  EXPECT_EQ(requests_[0].input_tokens, 1030u);
  EXPECT_EQ(requests_[0].output_tokens, 7u);
  EXPECT_EQ(requests_[0].block_tokens, 512u);
  EXPECT_THAT(requests_[0].hash_ids, ElementsAre(0, 1, 46));
  EXPECT_EQ(requests_[1].line, 2u);
  EXPECT_EQ(requests_[1].timestamp_ms, 6);
  EXPECT_EQ(requests_[1].session, 3u);
  EXPECT_THAT(requests_[1].hash_ids, IsEmpty());
}

TEST_F(TraceReaderTest, NamesABrokenLineAndKeepsTheRest) {
  const std::vector<std::string> bad = {
      "{\"timestamp\": 0, \"hash_ids\": [1, 2",     // Cut off.
      "{\"timestamp\": 0, \"hash_ids\": [1, -2]}",  // Negative.
      "{\"timestamp\": 0, \"hash_ids\": [1.5]}",    // Fraction.
      "{\"timestamp\": 0, \"hash_ids\": [1 2]}",    // No comma.
      "{\"timestamp\": 0, \"hash_ids\": \"1\"}",    // Another type.
      "{\"timestamp\": 0, \"hash_ids\": [99999999999999999999]}",
      "{\"timestamp\": nan, \"hash_ids\": [1]}",
      "{\"timestamp\": 0, \"input_length\": -1, \"hash_ids\": [1]}",
      "{\"timestamp\": 0, \"input_length\": 4294967296, \"hash_ids\": [1]}",
      "{\"hash_ids\": [1]}",
      "{\"timestamp\": 0}",
      "{\"timestamp\": 0, \"hash_ids\": [1]} x",
      "{\"timestamp\": 0, \"x\": [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]], \"hash_ids\": [1]}",
      "[1, 2]",
      "null",
      std::string("\0\xff", 2),
  };
  for (const std::string& line : bad) {
    requests_.clear();
    broken_.clear();
    const std::string good = "{\"timestamp\": 1, \"hash_ids\": [4]}\n";
    Read(Write(good + "\n" + line + "\n" + good));
    EXPECT_EQ(requests_.size(), 2u) << line;
    ASSERT_EQ(broken_.size(), 1u) << line;
    EXPECT_THAT(broken_[0], ::testing::StartsWith("3: ")) << line;
    EXPECT_EQ(requests_.back().line, 4u);
    EXPECT_TRUE(status_.ok());
  }
}

TEST_F(TraceReaderTest, ABrokenFieldIsToldFromALineThatIsCutOff) {
  Read(Write("{\"timestamp\": 1, \"hash_ids\": [1, 2\n{\"timestamp\": 1, \"hash_ids\": [1, x]}\n"));
  EXPECT_THAT(broken_, ElementsAre("1: field \"hash_ids\", column 35: the line ends inside it",
                                   "2: field \"hash_ids\", column 34: not what such a field has"));
}

TEST_F(TraceReaderTest, SkipsALineAboveTheBound) {
  const std::string good = "{\"timestamp\": 1, \"hash_ids\": [4]}\n";
  Read(Write(good + std::string(kTraceLineBytesMax + 1, 'x') + "\n" + good));
  EXPECT_EQ(requests_.size(), 2u);
  ASSERT_EQ(broken_.size(), 1u);
  EXPECT_THAT(broken_[0], AllOf(HasSubstr("2: over "), HasSubstr(std::to_string(kTraceLineBytesMax))));
}

TEST_F(TraceReaderTest, RefusesMoreIdsThanTheBound) {
  std::string line = "{\"timestamp\": 1, \"hash_ids\": [0";
  for (size_t i = 0; i < kTraceIdsPerRequestMax; ++i) line += ",1";
  Read(Write(line + "]}\n{\"session\":0,\"start_ms\":0,\"block\":64}\n"
                    "{\"s\":0,\"t\":0,\"keep\":0,\"add\":[[0,262144],[0,1]]}\n"
                    "{\"s\":0,\"t\":0,\"keep\":0,\"add\":[[0,262144]]}\n"
                    "{\"s\":0,\"t\":0,\"keep\":262144,\"add\":[[0,1]]}\n"));
  EXPECT_EQ(broken_.size(), 3u);
  EXPECT_EQ(requests_.size(), 1u);
}

constexpr char kDelta[] =
    "{\"session\":2,\"name\":\"a\",\"start_ms\":100,\"block\":64,\"tool_tokens\":1,\"system_tokens\":2,"
    "\"requests\":3}\n"
    "{\"s\":2,\"t\":0,\"in\":200,\"out\":5,\"keep\":0,\"add\":[[1,3]],\"api_ms\":5,\"think_ms\":0}\n"
    "{\"s\":2,\"t\":10,\"in\":250,\"out\":5,\"keep\":2,\"add\":[[7,1],[9,2]],\"sub\":1}\n"
    "{\"s\":2,\"t\":20,\"in\":130,\"out\":5,\"keep\":2,\"add\":[]}\n"
    "{\"session\":3,\"start_ms\":50,\"block\":64}\n"
    "{\"s\":3,\"t\":0,\"in\":70,\"out\":5,\"keep\":0,\"add\":[[1,1]]}\n";

TEST_F(TraceReaderTest, UnrollsTheDeltaForm) {
  Read(Write(kDelta));
  EXPECT_THAT(broken_, IsEmpty());
  ASSERT_EQ(requests_.size(), 4u);
  constexpr uint64_t kTwo = uint64_t{2} << 32;
  constexpr uint64_t kThree = uint64_t{3} << 32;
  EXPECT_THAT(requests_[0].hash_ids, ElementsAre(kTwo | 1, kTwo | 2, kTwo | 3));
  EXPECT_THAT(requests_[1].hash_ids, ElementsAre(kTwo | 1, kTwo | 2, kTwo | 7, kTwo | 9, kTwo | 10));
  EXPECT_THAT(requests_[2].hash_ids, ElementsAre(kTwo | 1, kTwo | 2));
  EXPECT_THAT(requests_[3].hash_ids, ElementsAre(kThree | 1));
  EXPECT_EQ(requests_[1].timestamp_ms, 110);
  EXPECT_EQ(requests_[1].block_tokens, 64u);
  EXPECT_EQ(requests_[1].session, 2u);
}

TEST_F(TraceReaderTest, LeavesOutWhatBuildsOnABrokenDelta) {
  std::string text = kDelta;
  text.replace(text.find("\"keep\":2,\"add\":[[7"), 8, "\"keep\":4");  // More than line 2 has.
  Read(Write(text));
  EXPECT_THAT(broken_, ElementsAre(HasSubstr("3: keeps 4"), HasSubstr("4: builds on")));
  ASSERT_EQ(requests_.size(), 2u);
  EXPECT_EQ(requests_[1].line, 6u);
}

TEST_F(TraceReaderTest, RefusesDeltaLinesWithoutTheirHeader) {
  Read(
      Write("{\"s\":2,\"t\":0,\"in\":200,\"keep\":0,\"add\":[[1,3]]}\n"
            "{\"session\":2,\"start_ms\":100,\"block\":0}\n"
            "{\"s\":2,\"t\":0,\"in\":200,\"keep\":0,\"add\":[[1,3]]}\n"));
  EXPECT_EQ(broken_.size(), 3u);
  EXPECT_THAT(requests_, IsEmpty());
}

TEST_F(TraceReaderTest, ReadsCompressedFilesOfSeveralFrames) {
  std::string text;
  for (int i = 0; i < 50'000; ++i)
    text += "{\"timestamp\": " + std::to_string(i) + ", \"hash_ids\": [0, 1]}\n";
  Read(Write(Compress(text) + Compress(text)));
  EXPECT_EQ(requests_.size(), 100'000u);
  EXPECT_THAT(broken_, IsEmpty());
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(requests_.back().timestamp_ms, 49'999);
}

TEST_F(TraceReaderTest, TellsWhenACompressedFileIsCutOffOrDamaged) {
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += "{\"timestamp\": " + std::to_string(i * i) + ", \"hash_ids\": [0, 1]}\n";
  const std::string whole = Compress(text);
  Read(Write(whole.substr(0, whole.size() / 2)));
  EXPECT_EQ(status_.code(), absl::StatusCode::kDataLoss) << status_;
  std::string damaged = whole;
  damaged[4] = '\xff';
  Read(Write(damaged));
  EXPECT_EQ(status_.code(), absl::StatusCode::kDataLoss) << status_;
}

TEST_F(TraceReaderTest, AByteOrderMarkCostsNoLine) {
  const std::string text =
      "\xef\xbb\xbf{\"timestamp\": 1, \"hash_ids\": [0]}\n{\"timestamp\": 2, \"hash_ids\": [0]}\n";
  Read(Write(text));
  Read(Write(Compress(text)));
  EXPECT_EQ(requests_.size(), 4u);
  EXPECT_THAT(broken_, IsEmpty());
}

TEST_F(TraceReaderTest, NamesAGzipFileByItsKind) {
  Read(Write("\x1f\x8b\x08 and more"));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("is gzip"));
  EXPECT_THAT(requests_, IsEmpty());
  EXPECT_THAT(broken_, IsEmpty());
}

TEST_F(TraceReaderTest, ReadsNothingFromAnEmptyFile) {
  Read(Write(""));
  EXPECT_THAT(requests_, IsEmpty());
  EXPECT_THAT(broken_, IsEmpty());
  EXPECT_TRUE(status_.ok());
}

TEST_F(TraceReaderTest, NamesAFileThatCannotBeOpened) {
  const absl::Status missing = TraceReader::Open("/no/such/trace").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/no/such/trace"));
  EXPECT_EQ(TraceReader::Open(folder_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TraceReaderTest, CountsThePublicTraces) {
  struct Row {
    const char* name;
    size_t requests, blocks;
  };
  for (const Row& row : {Row{kConversationTrace, 12'031, 288'500}, Row{kSyntheticTrace, 3'993, 121'877},
                         Row{kAgenticTrace, 24'663, 6'057'870}}) {
    const std::string path = TraceFile(row.name);
    if (path.empty()) GTEST_SKIP() << row.name << " is absent";
    const auto requests = ReadTraceIds(path);
    EXPECT_EQ(requests.size(), row.requests) << row.name;
    const size_t blocks = std::accumulate(requests.begin(), requests.end(), size_t{0},
                                          [](size_t sum, const auto& ids) { return sum + ids.size(); });
    EXPECT_EQ(blocks, row.blocks) << row.name;
  }
}

TEST_F(TraceReaderTest, AgreesOnBothFormsOfTheAgenticTrace) {
  const std::string path = TraceFile("agentic_a_64d.jsonl.zst");
  if (path.empty()) GTEST_SKIP() << "agentic_a_64d.jsonl.zst is absent";
  Read(path);
  EXPECT_THAT(broken_, IsEmpty());
  EXPECT_EQ(requests_.size(), 24'663u);
  for (const TraceRequest& request : requests_)
    ASSERT_EQ(request.hash_ids.size(), request.input_tokens / 64) << request.line;
}

}  // namespace
}  // namespace cistern
