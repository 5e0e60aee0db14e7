// As work.go, with C: malloc in many threads, callbacks into Go, a fault in C that Go's handler sees.
package main

/*
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
extern int goCallback(int);
static unsigned long churn(unsigned seed) {
  unsigned long sum = 0;
  for (unsigned i = 0; i < 20000; ++i) {
    const size_t size = (i * 31 + seed) % 5000 + 1;
    char *block = malloc(size);
    memset(block, (int)i, size);
    sum += (unsigned char)block[size - 1];
    free(block);
  }
  return sum;
}
static int callBack(int value) { return goCallback(value) + 1; }
*/
import "C"

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"sync"
)

//export goCallback
func goCallback(value C.int) C.int {
	kept := make([][]byte, 100)
	for i := range kept {
		kept[i] = make([]byte, 10000)
	}
	return value*2 + C.int(len(kept))
}

func main() {
	var group sync.WaitGroup
	sums := make([]uint64, 8)
	for n := range sums {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			runtime.LockOSThread()
			sums[n] = uint64(C.churn(C.uint(n))) + uint64(C.callBack(C.int(n)))
		}(n)
	}
	group.Wait()
	fmt.Println(sums)
	me, failed := user.Current()
	fmt.Println(me.Uid, failed)
	addresses, failed := net.LookupHost("localhost")
	fmt.Println(len(addresses) > 0, failed)
	fmt.Println("probe", exec.Command(os.Getenv("PROBE")).Run())
	os.Exit(3)
}
