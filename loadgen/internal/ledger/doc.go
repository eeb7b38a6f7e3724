// Package ledger proves what was delivered. It sees only what devices report (sends answered, events applied) and, at
// the end, an export of the log; it shares nothing with the devices' own cursor logic.
//
// For each pair of a connected device and a conversation of its user it keeps the last seq applied, a count, and a digest:
// the sum modulo 2⁶⁴ of a keyed hash of (seq, mid, body hash) over the messages applied. The order is held by the seq:
// each delivery must be the next one; one that jumps leaves a gap behind, one that fills a gap was out of order, any
// other was applied twice. At settle the same sum runs over the log, and must agree at the seq where each device stands,
// so that contents are bound to seqs, and nothing is taken on trust from the moment at which it was checked.
//
// To name a culprit by its seq, content is also compared at once with the log as the sent replies tell it. A delivery
// may come before the reply: then the first device's word stands until the reply or the export confirms or refutes it.
//
// All Sink methods are safe for any number of goroutines. AddLog, Settle, Export and Import belong to one owner and come when the
// devices have stopped.
//
// In conversations that the run shares with others (Config.Shared) the messages of this run are told from theirs by the
// marker in the bodies. Theirs hold seqs, and nothing more is asked of them; from which seq on a conversation is looked at
// is where the server said that it stood.
//
// When several processes drive a run, each has a ledger of its own devices, and all have the same key; Export and Import
// bring their parts together before the log is compared, in which the sent replies of one are held against what the
// devices of another applied.
//
// Memory is bounded: 24 bytes a pair, 80 a conversation, and at most Config.MaxEntries log entries of 32 bytes. When
// that many are kept, a conversation that gets another one folds the older half of its own into a digest; what devices
// apply below the fold is still proven by the digests at settle, but a difference there is named without its seq. A
// hundred culprits are kept, of all there is a count; 65 536 gaps and 1 Mi sends of unknown outcome are kept, what is
// beyond counts as lost or unresolved.
package ledger
