package checks

import "testing"

func check05Tokens(t *testing.T) {}
