# whyrss.1 from what the program says of itself, so that no option is left out:
# cmake -DPROGRAM=whyrss -DVERSION=0.1.0 -DOUTPUT=whyrss.1 -P man_page.cmake
# A page indents it by 7 of the 78 columns that man fills of 80.
function(help_of result)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env COLUMNS=71 ${PROGRAM} ${ARGN} --help
    OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# Printed as it is: no line may begin with a request of roff, and "-" is no hyphen.
function(escape result text)
  string(REPLACE "\\" "\\e" text "${text}")
  string(REPLACE "-" "\\-" text "${text}")
  string(REGEX REPLACE "(^|\n)([.'])" "\\1\\\\&\\2" text "${text}")
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

help_of(overview)
string(REGEX MATCHALL "\n  whyrss [a-z][a-z-]*" verbs "${overview}")
list(TRANSFORM verbs REPLACE "\n  whyrss " "")
list(REMOVE_DUPLICATES verbs)
escape(overview "${overview}")
set(page ".TH WHYRSS 1 \"\" \"whyrss ${VERSION}\" \"User Commands\"
.SH NAME
whyrss \\- why the memory of a program grows, which line does it, and whether it will come back
.SH SYNOPSIS
.B whyrss
.RI [ VERB ]
.RI [ OPTIONS ]
.RI [ WORDS ]
.SH DESCRIPTION
.nf
${overview}.fi
")
foreach(verb IN LISTS verbs)
  help_of(text ${verb})
  string(TOUPPER ${verb} title)
  escape(title ${title})
  escape(text "${text}")
  string(APPEND page ".SH ${title}\n.nf\n${text}.fi\n")
endforeach()
string(APPEND page ".SH EXIT STATUS
.B record
ends as the program ended: with its exit code, or by its signal.
125: it cannot start to record; 126: the program cannot be executed; 127: it was not found.
Other verbs: 0 done, 1 bad or unreadable input, 2 wrong usage, 3 a condition of
.B \\-\\-fail\\-if
held.
.SH ENVIRONMENT
.TP
.B WHYRSS_OUTPUT
with the library in
.BR LD_PRELOAD :
the directory to record to, for commands whose command line cannot change
.RB ( \"whyrss env\" ).
.TP
.B WHYRSS_OPTS
options of
.B record
for such commands: names with _ for \\-, as in mode=exact,sample_bytes=65536.
.TP
.B NO_COLOR
no colours on a terminal.
.TP
.B COLUMNS
the width of text, where it is not that of the terminal (100 where there is none).
.SH FILES
A recording is a directory that only its user can read.
")
file(WRITE ${OUTPUT} "${page}")
