# find_package(whyrss): the target whyrss::whyrss has the folder of whyrss.h. There is nothing to link: the functions are
# weak, and come with the library that `whyrss record` loads.
include(${CMAKE_CURRENT_LIST_DIR}/whyrss-targets.cmake)
