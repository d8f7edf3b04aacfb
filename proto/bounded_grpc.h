#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <concepts>

namespace cistern {

// How every message of our services is read off gRPC's wire: through ParseBounded.
grpc::Status DeserializeBounded(grpc::ByteBuffer* buffer, google::protobuf::Message* message);

}  // namespace cistern

namespace grpc {

// gRPC's own trait, but for reading. The generated stubs include this file (proto/CMakeLists.txt), so that no
// message is read in two ways; being the more constrained one, it is taken wherever both would do.
template <class T>
requires std::derived_from<T, google::protobuf::Message>
class SerializationTraits<
    T, typename std::enable_if<std::is_base_of<grpc::protobuf::MessageLite, T>::value>::type> {
 public:
  static Status Serialize(const grpc::protobuf::MessageLite& message, ByteBuffer* buffer, bool* own_buffer) {
    return GenericSerialize<ProtoBufferWriter, T>(message, buffer, own_buffer);
  }

  static Status Deserialize(ByteBuffer* buffer, T* message) {
    return cistern::DeserializeBounded(buffer, message);
  }
};

}  // namespace grpc
