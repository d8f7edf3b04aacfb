#include "proto/bounded_grpc.h"

#include <grpcpp/support/byte_buffer.h>

#include <string_view>

#include "proto/bounded_parse.h"

namespace cistern {

grpc::Status DeserializeBounded(grpc::ByteBuffer* buffer, google::protobuf::Message* message) {
  if (buffer == nullptr) return {grpc::StatusCode::INTERNAL, "no payload"};
  grpc::Slice whole;
  grpc::Status status = buffer->TrySingleSlice(&whole);
  if (!status.ok()) status = buffer->DumpToSingleSlice(&whole);  // It came in several pieces.
  buffer->Clear();
  if (!status.ok()) return status;
  const std::string_view bytes(reinterpret_cast<const char*>(whole.begin()), whole.size());
  if (ParseBounded(*message, bytes)) return grpc::Status::OK;
  return {grpc::StatusCode::INVALID_ARGUMENT, "bytes that are no " + message->GetTypeName()};
}

}  // namespace cistern
