package checks

import "testing"

func check05Frames(t *testing.T) {}
