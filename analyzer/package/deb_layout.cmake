# Of the .deb: what belongs to the whole system goes to where Debian has it. The program finds its library from where it
# really is.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
set(root ${CPACK_TEMPORARY_DIRECTORY})
set(own ${root}/usr/lib/whyrss)

function(move from to)
  get_filename_component(folder ${root}/${to} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(RENAME ${own}/${from} ${root}/${to})
endfunction()

# compressed as Debian's policy asks, the same each time
function(compress path)
  execute_process(COMMAND gzip -9n ${root}/${path} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

move(share/man/man1/whyrss.1 usr/share/man/man1/whyrss.1)
compress(usr/share/man/man1/whyrss.1)
move(share/bash-completion/completions/whyrss usr/share/bash-completion/completions/whyrss)
move(share/zsh/site-functions/_whyrss usr/share/zsh/vendor-completions/_whyrss)
move(share/fish/vendor_completions.d/whyrss.fish usr/share/fish/vendor_completions.d/whyrss.fish)
move(include/whyrss.h usr/include/whyrss.h)
move(share/doc/whyrss usr/share/doc/whyrss)
file(REMOVE_RECURSE ${own}/include)
file(REMOVE_RECURSE ${own}/share/man ${own}/share/bash-completion ${own}/share/zsh ${own}/share/fish
  ${own}/share/doc)

# find_package() looks in /usr/lib/cmake; the package finds its header two folders above itself.
move(lib/cmake/whyrss usr/lib/cmake/whyrss)
file(REMOVE_RECURSE ${own}/lib/cmake)

file(MAKE_DIRECTORY ${root}/usr/bin ${root}/usr/lib/python3/dist-packages)
file(CREATE_LINK ../lib/whyrss/bin/whyrss ${root}/usr/bin/whyrss SYMBOLIC)
file(GLOB modules RELATIVE ${own}/lib/python ${own}/lib/python/*)
foreach(module IN LISTS modules)
  file(CREATE_LINK ../../whyrss/lib/python/${module} ${root}/usr/lib/python3/dist-packages/${module} SYMBOLIC)
endforeach()

file(REMOVE ${root}/usr/share/doc/whyrss/LICENSE)
file(WRITE ${root}/usr/share/doc/whyrss/copyright
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: whyrss
Comment: LIBRARIES.md names the libraries in the program, licences/ has their terms.

Files: *
Copyright: the whyrss authors
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
")
file(MAKE_DIRECTORY ${root}/usr/share/lintian/overrides)
file(WRITE ${root}/usr/share/lintian/overrides/whyrss
"# One package for every Debian and Ubuntu, also those whose libraries are older than what whyrss is built with.
whyrss: embedded-library *
whyrss: shared-library-lacks-prerequisites *
")
file(WRITE ${root}/usr/share/doc/whyrss/changelog
  "whyrss (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n  * Release ${CPACK_PACKAGE_VERSION}.\n\n"
  " -- ${CPACK_PACKAGE_CONTACT}  Thu, 01 Jan 1970 00:00:00 +0000\n")
compress(usr/share/doc/whyrss/changelog)
