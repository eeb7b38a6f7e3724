package batch

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// What came while a flush was under way is nobody who was answered: the next flush waits for those on top of it.
func TestLingerCountsFromTheAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		answer := make(chan struct{})
		c := newCollector[int](64, 8, func(int) time.Duration { return time.Minute }, nil)
		c.flush = func(batch []int) {
			sizes = append(sizes, len(batch))
			<-answer
			c.answering()
		}
		c.start()
		begun := time.Now()
		for i := range 2 {
			c.add(i)
		}
		time.Sleep(time.Minute) // virtual, as all of the clock in here; nobody was answered yet whose return could end the wait
		synctest.Wait()
		c.add(2)
		answer <- struct{}{}
		for i := range 2 {
			synctest.Wait()
			if len(sizes) != 1 {
				t.Fatalf("after %d of 2 were back it flushed: %v", i, sizes)
			}
			c.add(3 + i)
		}
		synctest.Wait()
		if !slices.Equal(sizes, []int{2, 3}) || time.Since(begun) != time.Minute {
			t.Errorf("flushes of %v after %v", sizes, time.Since(begun))
		}
		close(answer)
		c.close()
		<-c.done
	})
}
