# `cistern replay --layout`: layouts of several groups.
target_sources(cistern_cli_base
  PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/replay_output.cc
  PUBLIC FILE_SET HEADERS FILES ${CMAKE_CURRENT_SOURCE_DIR}/replay_output.h ${CMAKE_CURRENT_SOURCE_DIR}/store_memory.h)
if(TARGET cistern)
  target_sources(cistern PRIVATE group_replay.cc group_replay_command.cc)
endif()
