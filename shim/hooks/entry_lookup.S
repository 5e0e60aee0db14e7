// dlsym and dlvsym. RTLD_NEXT and RTLD_DEFAULT mean something else for each caller, whom libc knows by the return
// address: these go on by a tail jump, with nothing changed. So does each other name that is not of the malloc family
// (entry_lookup.cc).

        .text

        .macro  LOOKUP name
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        leaq    1(%rdi), %rax
        cmpq    $1, %rax                // -1 RTLD_NEXT, 0 RTLD_DEFAULT
        ja      whyrss_\name            // same arguments in the same places
        movq    whyrss_real_\name(%rip), %rax
        testq   %rax, %rax
        jz      1f
        jmp     *%rax
1:      pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        call    whyrss_resolve_\name    // returns the real one
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   \name, .-\name
        .endm

        LOOKUP  dlsym
        LOOKUP  dlvsym

        .section .note.GNU-stack, "", @progbits
