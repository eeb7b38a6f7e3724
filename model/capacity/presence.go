package capacity

import (
	"fmt"
	"math"
)

// presence is one stream of messages over one kind of conversation, seen by the number of connected devices that a
// conversation has. Slices run over the same values of c ≥ 1.
//
// Active sets make a closed system: all active conversations speak at the same rate λ = stream rate / active set, so each
// stays for τ = burst/λ in the mean whatever its size, and each place that falls free goes to a silent conversation with
// probability proportional to c. A conversation is therefore silent for 1/(θc/τ) in the mean, with one θ for all, and
// active for the share π(c) = θc/(1+θc) of the time; θ follows from convs · E[π(c)] = active. (With few active
// conversations π is proportional to c, and E[c | speaking] is the familiar E[c²]/E[c].)
type presence struct {
	convs   float64
	active  float64
	rate    float64 // messages/s of the stream
	members int
	burst   float64
	lambda  float64 // λ, messages/s of an active conversation
	tau     float64 // τ, s
	c       []float64
	prob    []float64 // that a conversation has c connected devices; what is missing to 1 has none
	odds    []float64 // θc, time active over time silent
	share   []float64 // of the messages that fall on conversations with c
}

// tiny is the probability below which a count of devices is left out.
const tiny = 1e-10

// newPresence draws members evenly among users, and connected devices evenly among all devices: the number of two-device
// users among n members is hypergeometric, and so is the number of connected ones among their devices.
func newPresence(in RunInputs, members, convs, active int, rate PerSecond) (presence, error) {
	p := presence{convs: float64(convs), active: float64(active), rate: float64(rate), members: members, burst: float64(in.Burst)}
	p.lambda = p.rate / p.active
	p.tau = p.burst / p.lambda
	devices := in.Users + in.TwoDeviceUsers
	byCount := make([]float64, 2*members+1)
	for two := range members + 1 {
		q := hypergeometric(in.Users, in.TwoDeviceUsers, members, two)
		if q < tiny {
			continue
		}
		for c := range members + two + 1 {
			byCount[c] += q * hypergeometric(devices, in.ConnectedDevices, members+two, c)
		}
	}
	for c, q := range byCount {
		if c >= 1 && q > tiny {
			p.c, p.prob = append(p.c, float64(c)), append(p.prob, q)
		}
	}
	if reachable := p.convs * (1 - byCount[0]); p.active >= reachable {
		return p, fmt.Errorf("%w: %d active conversations of %d members, and only %.0f of %d have a connected device",
			ErrInputs, active, members, reachable, convs)
	}
	p.solve()
	return p, nil
}

// solve finds θ by bisection on its logarithm: the expected number of active conversations grows with θ.
func (p *presence) solve() {
	speaking := func(theta float64) (sum float64) {
		for i, c := range p.c {
			sum += p.prob[i] * theta * c / (1 + theta*c)
		}
		return p.convs * sum
	}
	low, high := -40.0, 40.0
	for range 100 {
		if mid := (low + high) / 2; speaking(math.Exp(mid)) < p.active {
			low = mid
		} else {
			high = mid
		}
	}
	theta := math.Exp((low + high) / 2)
	for i, c := range p.c {
		x := theta * c
		p.odds = append(p.odds, x)
		p.share = append(p.share, p.convs*p.prob[i]*x/(1+x)/p.active)
	}
}

// mean of y over the messages of the stream.
func (p *presence) mean(y []float64) (sum float64) {
	for i, q := range p.share {
		sum += q * y[i]
	}
	return sum
}

// variance over seeds of Σ y over the stream's messages in a window of t seconds, where y is a conversation's value for
// each of its messages. Three independent parts: the number of messages is Poisson; which conversations speak differs;
// and so does the population. (Noise within a message's own value is added by the caller.)
func (p *presence) variance(y []float64, t float64) float64 {
	mean := p.mean(y)
	total := mean * mean * p.rate * t
	for i, q := range p.prob {
		total += p.convs * q * p.messageVariance(p.odds[i], t) * (y[i] - mean) * (y[i] - mean)
	}
	return total + p.populationVariance(y, mean, t)
}

// messageVariance is Var of the messages of one conversation in t seconds. While active they are Poisson with λ; the
// correlation of being active is taken as exponential, with the time constant that gives the right value for long t,
// where renewal theory has Var/t → burst²·σ²/μ³ for cycles of one burst and one silence (Cox, Renewal Theory, 4.1).
func (p *presence) messageVariance(x, t float64) float64 {
	on := x / (1 + x)
	poisson := p.lambda * on * t
	long := p.burst * p.burst / p.tau * (x*x*x/p.burst + x) / math.Pow(1+x, 3)
	spread := p.lambda * p.lambda * on * (1 - on)
	if spread == 0 {
		return poisson
	}
	constant := (long - p.lambda*on) / (2 * spread)
	if constant <= 0 { // bursts of one message are more regular than Poisson
		return long * t
	}
	return poisson + 2*spread*constant*constant*(t/constant-1+math.Exp(-t/constant))
}

// populationVariance is what the draw of the population adds. Every user is in equally many conversations and the number
// of connected devices is fixed, so Σ c over all conversations hardly varies: only what is not linear in c counts.
func (p *presence) populationVariance(y []float64, mean, t float64) float64 {
	var z1, c1, cc, cz, zz float64
	for i, q := range p.prob {
		x := p.odds[i]
		z := x / (1 + x) * (y[i] - mean)
		z1, c1 = z1+q*z, c1+q*p.c[i]
		cc, cz, zz = cc+q*p.c[i]*p.c[i], cz+q*p.c[i]*z, zz+q*z*z
	}
	cov, varC, varZ := cz-c1*z1, cc-c1*c1, zz-z1*z1
	if varC > 0 {
		varZ -= cov * cov / varC
	}
	perMessage := math.Sqrt(p.convs*max(varZ, 0)) / p.active
	return perMessage * perMessage * p.rate * t * p.rate * t
}

// hypergeometric is P(k marked among n drawn from total with marked ones).
func hypergeometric(total, marked, n, k int) float64 {
	if k < 0 || k > marked || n-k < 0 || n-k > total-marked {
		return 0
	}
	return math.Exp(logChoose(marked, k) + logChoose(total-marked, n-k) - logChoose(total, n))
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}
