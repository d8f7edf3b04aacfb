#include "proto/layout_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include "absl/strings/str_cat.h"
#include "proto/convert_layout.h"

namespace cistern {
namespace {

// Keeps the first complaint; what follows it is mostly its echo.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (!message_.empty()) return;
    message_ = absl::StrCat(line + 1, ":", column + 1, ": ", message);
  }
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

}  // namespace

absl::StatusOr<layout::Layout> ParseLayoutText(std::string_view text, std::string_view source) {
  const std::string name(source);
  if (text.size() > kLayoutTextBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", text.size(), " bytes, above the limit of ",
                                                   kLayoutTextBytesMax, " for a layout's text"));
  }
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(8);  // Layout, group, segment, plane, and room for an enum's scalar.
  google::protobuf::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  proto::Layout wire;
  if (!parser.Parse(&input, &wire)) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ":", error.message().empty() ? std::string("no layout in text form") : error.message()));
  }
  absl::StatusOr<layout::Layout> layout = FromWire(wire);
  if (!layout.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", layout.status().message()));
  return layout;
}

std::string FormatLayoutText(const layout::Layout& layout) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  printer.PrintToString(ToWire(layout), &text);
  return text;
}

}  // namespace cistern
