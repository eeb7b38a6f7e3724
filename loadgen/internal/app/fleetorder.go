package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"imbench/loadgen/internal/calibrate"
	"imbench/loadgen/internal/clock"
)

// orderKind is what all workers do at once, beside their job.
type orderKind string

// The orders, with the fields that count and what is answered.
const (
	orderCalibrate orderKind = "calibrate" // Calibrate → Calibration
	orderCut       orderKind = "cut"       // Fault, Share → N
	orderFreeze    orderKind = "freeze"    // Fault, Share, Length → N
	orderStand     orderKind = "stand"     // Fault → N, Open
	orderMark      orderKind = "mark"      // Fault
	orderHeads     orderKind = "heads"     // → Heads
	orderBehind    orderKind = "behind"    // Fault, Heads → N
)

// fleetOrder is an order on its way to a worker.
type fleetOrder struct {
	Do        orderKind
	Fault     int
	Share     float64
	Length    time.Duration
	Heads     []int64
	Calibrate calibrate.Config
}

// fleetAnswer is a worker's answer.
type fleetAnswer struct {
	N, Open     int64
	Heads       []int64
	Calibration calibrate.Result
}

// obey carries out an order; it is fleet.Obey, called by a goroutine of its own.
func (w *fleetWorker) obey(ctx context.Context, body []byte) ([]byte, error) {
	var o fleetOrder
	if err := decodeGob(body, &o); err != nil {
		return nil, fmt.Errorf("an order that cannot be read: %w", err)
	}
	a, err := w.carryOut(ctx, o)
	if err != nil {
		return nil, err
	}
	return encodeGob(a)
}

func (w *fleetWorker) carryOut(ctx context.Context, o fleetOrder) (a fleetAnswer, err error) {
	if o.Do == orderCalibrate {
		w.say("calibrating against a null server")
		r, err := calibrate.Run(ctx, o.Calibrate)
		if err == nil {
			a.Calibration = *r
		}
		return a, err
	}
	s := w.present.Load()
	if s == nil {
		return a, errors.New("this worker has no devices now")
	}
	n := 0
	switch o.Do {
	case orderCut:
		n, err = s.hands.Cut(ctx, o.Fault, o.Share)
		a.N = int64(n)
	case orderFreeze:
		n, err = s.hands.Freeze(ctx, o.Fault, o.Share, o.Length)
		a.N = int64(n)
	case orderStand:
		a.N, a.Open, err = s.watch.Stand(ctx, o.Fault)
	case orderMark:
		err = s.watch.Mark(ctx, o.Fault)
	case orderHeads:
		a.Heads, err = s.watch.Heads(ctx)
	case orderBehind:
		a.N, err = s.watch.Behind(ctx, o.Fault, o.Heads)
	default:
		err = fmt.Errorf("unknown order %q", o.Do)
	}
	return a, err
}

// present is what orders are carried out on while a worker drives its share.
type present struct {
	hands hands
	watch *watch
}

// calibrateLead is how long workers have for starting their null servers and connecting to them, before they measure together.
const calibrateLead = 2 * time.Second

// calibrate has all workers calibrate at the same time: on one machine they share its processors, and what they can do
// together is the ceiling that counts.
func (f *fleetRun) calibrate(ctx context.Context, cfg calibrate.Config) (*calibrate.Result, error) {
	members := f.fleet.Members()
	rate, start := cfg.Rate, clock.Now().Add(calibrateLead)
	cfg.Rate /= float64(len(members))
	var orders [][]byte
	for _, m := range members {
		cfg.Start = start.Add(m.Clock.Ahead)
		b, err := encodeGob(fleetOrder{Do: orderCalibrate, Calibrate: cfg})
		if err != nil {
			return nil, err
		}
		orders = append(orders, b)
	}
	answers, err := f.fleet.Ask(ctx, orders...)
	if err != nil {
		return nil, err
	}
	parts := make([]calibrate.Part, len(answers))
	for i, b := range answers {
		var a fleetAnswer
		if err := decodeGob(b, &a); err != nil {
			return nil, err
		}
		parts[i] = calibrate.Part{Name: members[i].Name, Result: a.Calibration}
	}
	return calibrate.Merge(parts, rate)
}
