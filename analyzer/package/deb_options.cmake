# Read by cpack for each generator. A .deb keeps the folder together, in a place of its own; deb_layout.cmake links to it.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr/lib/whyrss)
endif()
