# The node's link to the router. Included by cache_node/CMakeLists.txt, so paths are that folder's.
cistern_library(cistern_registrar
  SRCS ${CMAKE_CURRENT_LIST_DIR}/registrar.cc
  HDRS ${CMAKE_CURRENT_LIST_DIR}/registrar.h
  DEPS cistern_core cistern_proto)
target_link_libraries(cistern_registrar PRIVATE cistern_proto_grpc)
