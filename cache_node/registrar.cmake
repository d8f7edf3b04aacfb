# The node's link to the router. Included by cache_node/CMakeLists.txt; paths are from the source root.
cistern_library(cistern_registrar
  SRCS ${PROJECT_SOURCE_DIR}/cache_node/registrar.cc
  HDRS ${PROJECT_SOURCE_DIR}/cache_node/registrar.h
  DEPS cistern_core cistern_proto)
target_link_libraries(cistern_registrar PRIVATE cistern_proto_grpc)
