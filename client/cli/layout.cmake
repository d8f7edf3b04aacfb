# `cistern layout …` and `cistern calc memory`: they need no cluster, so tests call them in their own process.
target_sources(cistern_cli_base PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/layout_flags.cc)
cistern_headers(cistern_cli_base ${CMAKE_CURRENT_SOURCE_DIR}/layout_flags.h ${CMAKE_CURRENT_SOURCE_DIR}/layout_options.h)

cistern_library(cistern_cli_layout
  SRCS calc_memory.cc layout_command.cc layout_from_config.cc layout_json.cc
  HDRS layout_json.h
  DEPS cistern_cli_base cistern_calc cistern_model_config cistern_proto)
if(TARGET cistern)
  target_link_libraries(cistern PRIVATE cistern_cli_layout)
endif()
cistern_test(cistern_cli_layout_test SRCS layout_test.cc DEPS cistern_cli_layout)
