// Many goroutines that wait: most for one channel, some each for a channel of its own, some for a lock.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

var mutex sync.Mutex

//go:noinline
func receives(from chan int) { <-from }

//go:noinline
func locks() {
	mutex.Lock()
	mutex.Unlock()
}

func main() {
	number, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	one := make(chan int)
	mutex.Lock()
	for i := 0; i < number; i++ {
		switch i % 10 {
		case 0:
			go receives(make(chan int))
		case 1:
			go locks()
		default:
			go receives(one)
		}
	}
	// Until all have begun to wait.
	for runtime.NumGoroutine() < number {
		time.Sleep(time.Millisecond)
	}
	runtime.GC()
	time.Sleep(100 * time.Millisecond)
	fmt.Printf("ready %d\n", number)
	bufio.NewReader(os.Stdin).ReadString('\n')
}
