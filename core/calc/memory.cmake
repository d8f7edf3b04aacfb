# What a context takes, and bars of it.
target_sources(cistern_calc PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/bar_chart.cc ${CMAKE_CURRENT_SOURCE_DIR}/memory.cc)
cistern_headers(cistern_calc ${CMAKE_CURRENT_SOURCE_DIR}/bar_chart.h ${CMAKE_CURRENT_SOURCE_DIR}/memory.h)

cistern_test(calc_memory_test SRCS bar_chart_test.cc memory_test.cc DEPS cistern_calc)
