package capacity

// Units are types, so that a rate cannot be passed for a share.
type (
	PerSecond      float64 // events per second
	Share          float64 // 0 to 1
	Count          float64 // a number of things, a mean where it is not whole
	Bytes          float64
	BytesPerSecond float64
	Seconds        float64
	Days           float64
)

// Standing says where a number comes from; no number is shown without it.
type Standing string

// Given: the source documents state it. Bounded: they only imply an interval. Measured: obtained from the project's own
// runs. Assumed: to be measured, until then an assumption; so is a value that the caller has set.
const (
	Given    Standing = "given"
	Bounded  Standing = "bounded"
	Measured Standing = "measured"
	Assumed  Standing = "assumed"
)
