package checks

import "testing"

func check05Bounds(t *testing.T) {}
