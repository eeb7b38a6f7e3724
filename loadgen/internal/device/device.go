// Package device is a virtual device that behaves as a good client does.
package device
