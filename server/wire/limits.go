package wire

// Limits of the wire. The gateway tells the ones that a client needs in welcome (Limits); these are the values that
// the codec itself holds to.
const (
	MaxFrame    = 64 << 10  // bytes of a request frame; a larger one closes the connection (4400)
	MaxBody     = 8 << 10   // bytes of a message body, as UTF-8 after unescaping
	MaxID       = 64        // bytes of an id: rid, conv, cmid, device, user
	MaxReply    = 256 << 10 // bytes of a frame from the gateway: a sync page is cut before it would be larger
	MaxPage     = 200       // events or conversations a page
	DefaultPage = 100       // the page when a request states no limit
	MaxNumber   = 1<<53 - 1 // the largest number on the wire: what a double holds exactly
)

// maxDepth bounds the nesting of values that DecodeFrame skips.
const maxDepth = 16
