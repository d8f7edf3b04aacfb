#pragma once

#include <string_view>

namespace google::protobuf {
class Message;
}

namespace cistern {

// Levels that messages from outside may nest; ours nest five.
inline constexpr int kMessageDepthMax = 32;

// Parses a message whose bytes come from outside: a wire, a file, a database. False leaves `out` as it may
// be. protobuf's own ParseFrom... is not for such bytes: it believes a length inside a message whose own
// announced length is a lie too, and reserves up to 50 MB for a string of it before it looks whether the
// bytes are there (from a stream, as gRPC reads, for any string at all). Here every announced length must lie
// within what encloses it before anything is parsed.
bool ParseBounded(google::protobuf::Message& out, std::string_view bytes);

}  // namespace cistern
