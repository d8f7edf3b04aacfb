# Layouts of several groups on the data path: hit rule, tails, ranks; and chains that grow.
set(HYBRID breakpoints chain_stream group_layout hit_rule miss_reason parallelism tail_retention tail_simulation)
list(TRANSFORM HYBRID PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE HYBRID_PATHS)
list(TRANSFORM HYBRID_PATHS APPEND .cc OUTPUT_VARIABLE HYBRID_SRCS)
list(TRANSFORM HYBRID_PATHS APPEND .h OUTPUT_VARIABLE HYBRID_HDRS)
target_sources(cistern_core PRIVATE ${HYBRID_SRCS} PUBLIC FILE_SET HEADERS FILES ${HYBRID_HDRS})

foreach(name breakpoints chain_stream hit_rule parallelism tail_retention)
  cistern_test(${name}_test SRCS ${name}_test.cc DEPS cistern_core)
endforeach()
if(BUILD_TESTING)
  target_compile_definitions(tail_retention_test PRIVATE CISTERN_TRACES_DEFAULT="${PROJECT_SOURCE_DIR}/../shared/traces")
endif()
cistern_benchmark(hit_rule_bench SRCS hit_rule_bench.cc DEPS cistern_core)
