# The simulated network. transport/CMakeLists.txt includes this.
cistern_library(cistern_loopback
  SRCS loopback_handshake.cc loopback_network.cc loopback_transport.cc
  HDRS loopback_network.h loopback_transport.h
  DEPS cistern_transport)
cistern_test(loopback_transport_test SRCS loopback_network_test.cc loopback_transport_test.cc DEPS cistern_loopback)
cistern_test(loopback_transport_suite_test SRCS loopback_transport_suite_test.cc transport_memory_suite.cc transport_suite.cc DEPS cistern_loopback)
