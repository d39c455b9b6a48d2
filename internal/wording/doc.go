// Package wording shapes foreign text for messages: short, on one line, with the word that was
// probably meant, and without characters that make it look like another text.
//
// What may not enter: the messages themselves, which belong to the packages that know what
// went wrong, and anything that stores or compares text.
package wording
