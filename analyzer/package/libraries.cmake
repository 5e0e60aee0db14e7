# Run when a package is made, by install(CODE) of CMakeLists.txt: the licences of the libraries that the program has in
# it, and the program's own objects with a script that links them anew.
set(doc_dir ${CMAKE_INSTALL_PREFIX}/share/doc/whyrss)
set(relink_dir ${CMAKE_INSTALL_PREFIX}/share/whyrss/relink)
if(shared_libraries)
  message(FATAL_ERROR "no package: the program would need shared libraries (${shared_libraries}); install the archives of "
    "all libraries, or build on Debian")
endif()

# name | Debian package of the archive or headers | licence
set(libraries
  "elfutils (libdw, libelf)|libdw-dev|LGPL-3+ or GPL-2+"
  "GNU C library|libc6-dev|LGPL-2.1+"
  "libiberty|libiberty-dev|LGPL-2.1+"
  "GCC runtime (libstdc++, libgcc)|gcc-12-base|GPL-3+ with the GCC Runtime Library Exception"
  "bzip2|libbz2-dev|BSD-like"
  "xz (liblzma)|liblzma-dev|public domain"
  "zlib|zlib1g-dev|Zlib"
  "zstd|libzstd-dev|BSD-3-Clause"
  "xxHash|libxxhash-dev|BSD-2-Clause"
  "SQLite|libsqlite3-dev|public domain"
  "fmt|libfmt-dev|MIT"
  "nlohmann-json|nlohmann-json3-dev|MIT"
  "CLI11|libcli11-dev|BSD-3-Clause"
  "protozero|libprotozero-dev|BSD-2-Clause")

set(table "# Libraries in the program `whyrss`

whyrss itself is under Apache-2.0 ([LICENSE](LICENSE)). The program has these libraries linked in, as Debian builds them;
their sources are Debian's source packages of that version. `licences/` holds their terms.
`../../whyrss/relink/` holds our part of the program and a script that links it with other versions of the libraries
(LGPL). The library `libwhyrss.so` that is loaded into programs has nothing in it but whyrss.

| library | licence | Debian source package |
|---|---|---|
")
foreach(entry IN LISTS libraries)
  string(REPLACE "|" ";" entry "${entry}")
  list(GET entry 0 name)
  list(GET entry 1 package)
  list(GET entry 2 licence)
  if(package STREQUAL "gcc-12-base")  # of the compiler at hand
    execute_process(COMMAND ${cxx_compiler} -dumpversion OUTPUT_VARIABLE major OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX REPLACE "\\..*" "" major "${major}")
    set(package gcc-${major}-base)
  endif()
  set(terms /usr/share/doc/${package}/copyright)
  if(NOT EXISTS ${terms})
    message(FATAL_ERROR "no package: ${terms} is missing, the terms of ${name}; packages are made on Debian")
  endif()
  execute_process(COMMAND dpkg-query -W -f "\${source:Package} \${source:Version}" ${package}
    OUTPUT_VARIABLE source COMMAND_ERROR_IS_FATAL ANY)
  string(APPEND table "| ${name} | ${licence} | ${source} |\n")
  configure_file(${terms} ${work_dir}/licences/${package}.txt COPYONLY)
  file(INSTALL ${work_dir}/licences/${package}.txt DESTINATION ${doc_dir}/licences)
endforeach()
file(INSTALL /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/LGPL-2.1 /usr/share/common-licenses/LGPL-3
  DESTINATION ${doc_dir}/licences)
string(APPEND table "
The page of `whyrss html` has preact and uPlot in it, both under MIT: `licences/web_licences.txt`.\n")
file(INSTALL ${CMAKE_CURRENT_LIST_DIR}/web_licences.txt DESTINATION ${doc_dir}/licences)
file(WRITE ${work_dir}/LIBRARIES.md "${table}")
file(INSTALL ${work_dir}/LIBRARIES.md DESTINATION ${doc_dir})

execute_process(COMMAND ld -r -o ${work_dir}/whyrss.o ${main_objects} --whole-archive ${program_objects}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND strip -g ${work_dir}/whyrss.o COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${work_dir}/relink "#!/bin/sh
# relink PROGRAM: links whyrss with the libraries of this machine; further words go to c++ (-L of other libraries).
set -e
program=$1
shift
c++ -static-pie -Wl,--wrap=dlopen -o \"$program\" \"$(dirname \"$0\")/whyrss.o\" \"$@\" \\
  -ldw -lelf -lbz2 -llzma -lz -lzstd -lxxhash -lsqlite3 -liberty
")
file(INSTALL ${work_dir}/whyrss.o DESTINATION ${relink_dir})
file(INSTALL ${work_dir}/relink DESTINATION ${relink_dir} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
  GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
