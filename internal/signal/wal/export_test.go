package wal

// ErrSlotForeign is the cause when the slot belongs to something else.
var ErrSlotForeign = errSlotForeign
