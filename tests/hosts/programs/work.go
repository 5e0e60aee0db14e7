// Goroutines, garbage, recovered panics, a child process, signals.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sort"
	"sync"
	"syscall"
)

func churn(seed int) int {
	kept := map[int][]byte{}
	for i := 0; i < 200000; i++ {
		kept[(i*31+seed)%5000] = make([]byte, i%200)
	}
	sum := 0
	for _, value := range kept {
		sum += len(value)
	}
	return sum
}

func recovered() (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	var nothing *struct{ field int }
	return fmt.Sprint(nothing.field)
}

func main() {
	var group sync.WaitGroup
	sums := make([]int, 8)
	for n := range sums {
		group.Add(1)
		go func(n int) { defer group.Done(); sums[n] = churn(n) }(n)
	}
	group.Wait()
	sort.Ints(sums)
	runtime.GC()
	fmt.Println(sums, recovered())
	fmt.Println("probe", exec.Command(os.Getenv("PROBE")).Run())
	out, failed := exec.Command("/bin/sh", "-c", "echo shell; exit 3").Output()
	fmt.Println(string(out), failed)
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, syscall.SIGUSR1)
	syscall.Kill(syscall.Getpid(), syscall.SIGUSR1)
	fmt.Println(<-arrived)
	os.Exit(3)
}
