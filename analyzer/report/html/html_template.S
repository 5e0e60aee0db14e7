// The page without data, as analyzer/web/build.mjs made it: report/html/html_page.cc fills it in.
    .section .rodata
    .global kHtmlTemplate
    .hidden kHtmlTemplate
    .type kHtmlTemplate, @object
kHtmlTemplate:
    .incbin WHYRSS_HTML_TEMPLATE
    .global kHtmlTemplateEnd
    .hidden kHtmlTemplateEnd
kHtmlTemplateEnd:
    .byte 0
    .size kHtmlTemplate, . - kHtmlTemplate
    .section .note.GNU-stack, "", @progbits
