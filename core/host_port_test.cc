#include "core/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cistern {
namespace {

using testing::HasSubstr;

TEST(ParseHostPort, TakesHostsAndBracketedV6) {
  EXPECT_EQ(ParseHostPort("127.0.0.1:7400")->port, 7400);
  EXPECT_EQ(ParseHostPort("router.local:1")->host, "router.local");
  EXPECT_EQ(ParseHostPort("[::1]:7400")->host, "::1");
  EXPECT_EQ(ParseHostPort("127.0.0.1:0", PortZero::kAnyFree)->port, 0);
  for (const char* text : {"127.0.0.1:7400", "router.local:1", "[::1]:65535"}) {
    EXPECT_EQ(ParseHostPort(text)->ToString(), text);
  }
}

TEST(ParseHostPort, RefusesWhatIsNoAddressAndSaysWhy) {
  const auto why = [](const std::string& text) {
    return std::string(ParseHostPort(text).status().message());
  };
  for (const char* text : {"", "7400", "host"}) EXPECT_THAT(why(text), HasSubstr("no port"));
  for (const char* text : {":", ":7400", "a b:5", "ho\nst:5", "ho\"st:5"}) {
    EXPECT_THAT(why(text), HasSubstr("host is empty, or no name"));
  }
  for (const char* text :
       {"host:", "host:65536", "host:-1", "host:+1", "host: 1", "host:12a", "host:99999999999999999999"}) {
    EXPECT_THAT(why(text), HasSubstr("its port is no such number"));
  }
  for (const char* text : {"::1:7400", "[::1:7", "[]:5", "[127.0.0.1]:5", "http://h:5"}) {
    EXPECT_FALSE(ParseHostPort(text).ok()) << text;
  }
  EXPECT_THAT(why("host:0"), HasSubstr("port 0"));
  EXPECT_THAT(why(std::string(300, 'a').append(":5")), HasSubstr("too long"));
  // One line, whatever came.
  EXPECT_EQ(why("ho\nst:5").find('\n'), std::string::npos);
  EXPECT_THAT(why("here:5x"), HasSubstr("\"here:5x\" is not HOST:PORT"));
}

TEST(IsLoopbackHost, KnowsNumbersAndOneName) {
  for (const char* host : {"127.0.0.1", "127.8.9.1", "localhost", "::1", "0::1"})
    EXPECT_TRUE(IsLoopbackHost(host));
  for (const char* host : {"0.0.0.0", "10.0.0.7", "127.example.org", "::", ""})
    EXPECT_FALSE(IsLoopbackHost(host));
}

TEST(IsWildcardHost, KnowsBothFamilies) {
  for (const char* host : {"0.0.0.0", "::", "0::0"}) EXPECT_TRUE(IsWildcardHost(host)) << host;
  for (const char* host : {"127.0.0.1", "::1", "any"}) EXPECT_FALSE(IsWildcardHost(host)) << host;
}

}  // namespace
}  // namespace cistern
