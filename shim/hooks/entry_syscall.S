// vfork and syscall. A C body cannot forward them: vfork returns twice on the same stack, so nothing of
// ours may be below the program's frame; syscall takes any arguments in any registers. Both leave by a
// tail jump with the return address untouched.

        .text

// pid_t vfork(void)
        .globl  vfork
        .type   vfork, @function
        .p2align 4
vfork:
        .cfi_startproc
        pushq   %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        // The program's state after the call: (return address, sp, bp).
        movq    8(%rbp), %rdi
        leaq    16(%rbp), %rsi
        movq    (%rbp), %rdx
        call    whyrss_before_vfork     // returns the real vfork
        popq    %rbp
        .cfi_def_cfa %rsp, 8
        jmp     *%rax
        .cfi_endproc
        .size   vfork, .-vfork

// long syscall(long number, ...)
        .globl  syscall
        .type   syscall, @function
        .p2align 4
syscall:
        .cfi_startproc
        cmpq    $28, %rdi               // madvise, the highest of them
        ja      1f
        movl    $0x12001e00, %eax       // bits 9 mmap, 10 mprotect, 11 munmap, 12 brk, 25 mremap, 28 madvise
        btq     %rdi, %rax
        jc      whyrss_memory_syscall   // same arguments in the same places
1:      leaq    -13(%rdi), %rax         // 13 rt_sigaction, 14 rt_sigprocmask
        cmpq    $1, %rax
        jbe     whyrss_signal_syscall
        cmpq    $157, %rdi              // prctl
        je      whyrss_filter_syscall
        cmpq    $317, %rdi              // seccomp
        je      whyrss_filter_syscall
        movq    whyrss_real_syscall(%rip), %rax
        testq   %rax, %rax
        jz      whyrss_plain_syscall
        jmp     *%rax
        .cfi_endproc
        .size   syscall, .-syscall

        .section .note.GNU-stack, "", @progbits
