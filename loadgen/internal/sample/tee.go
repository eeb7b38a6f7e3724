package sample

// Tee hands every observation to each sink in turn.
type Tee []Sink

// Frame implements Sink.
func (t Tee) Frame(f Frame) {
	for _, s := range t {
		s.Frame(f)
	}
}

// Send implements Sink.
func (t Tee) Send(x Send) {
	for _, s := range t {
		s.Send(x)
	}
}

// Deliver implements Sink.
func (t Tee) Deliver(d Delivery) {
	for _, s := range t {
		s.Deliver(d)
	}
}

// Op implements Sink.
func (t Tee) Op(o Op) {
	for _, s := range t {
		s.Op(o)
	}
}

// Reconnect implements Sink.
func (t Tee) Reconnect(device int32, code int) {
	for _, s := range t {
		s.Reconnect(device, code)
	}
}
