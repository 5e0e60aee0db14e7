// dlsym and dlvsym. RTLD_NEXT and RTLD_DEFAULT mean something else for each caller, whom libc knows by the return
// address: these go on by a tail jump, with nothing changed, but for names of Arrow (arrow_mi_...), which we define and
// the program may not have. So does each other name that is not of the malloc family (entry_lookup.cc).

        .text

        .macro  SAVE_ARGUMENTS
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        .endm

        .macro  RESTORE_ARGUMENTS
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        .endm

        .macro  LOOKUP name
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        leaq    1(%rdi), %rax
        cmpq    $1, %rax                // -1 RTLD_NEXT, 0 RTLD_DEFAULT
        ja      whyrss_\name            // same arguments in the same places
        testq   %rsi, %rsi
        jz      1f
        cmpb    $'a', (%rsi)
        je      3f
1:      movq    whyrss_real_\name(%rip), %rax
        testq   %rax, %rax
        jz      2f
        jmp     *%rax
2:      SAVE_ARGUMENTS
        call    whyrss_resolve_\name    // returns the real one
        RESTORE_ARGUMENTS
        jmp     *%rax
3:      SAVE_ARGUMENTS
        movq    %rsi, %rdi
        call    whyrss_is_arrow_entry
        RESTORE_ARGUMENTS
        testl   %eax, %eax
        jz      1b
        jmp     whyrss_\name
        .cfi_endproc
        .size   \name, .-\name
        .endm

        LOOKUP  dlsym
        LOOKUP  dlvsym

        .section .note.GNU-stack, "", @progbits
