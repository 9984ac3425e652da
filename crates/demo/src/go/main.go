// Goroutines that wait for each other: one has the cache and wants the index, the other the other way round. More wait for
// an answer that then never comes.
package main

import (
	"os"
	"sync"
	"syscall"
	"time"
)

var cache, index sync.Mutex

//go:noinline
func refresh(both *sync.WaitGroup) {
	cache.Lock()
	both.Done()
	both.Wait()
	index.Lock()
	index.Unlock()
	cache.Unlock()
}

//go:noinline
func reindex(both *sync.WaitGroup) {
	index.Lock()
	both.Done()
	both.Wait()
	cache.Lock()
	cache.Unlock()
	index.Unlock()
}

//go:noinline
func handle(answers chan string) {
	cache.Lock()
	answers <- "found"
	cache.Unlock()
}

func main() {
	// PR_SET_PDEATHSIG: it ends when whoever started it ends.
	syscall.Syscall(syscall.SYS_PRCTL, 1, uintptr(syscall.SIGKILL), 0)
	var both sync.WaitGroup
	both.Add(2)
	go refresh(&both)
	go reindex(&both)
	both.Wait()
	answers := make(chan string)
	for range [3]int{} {
		go handle(answers)
	}
	go func() { <-answers }()
	os.Stdout.WriteString("ready\n")
	for {
		time.Sleep(time.Hour)
	}
}
