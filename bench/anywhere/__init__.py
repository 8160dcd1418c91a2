"""The example by a Spark that writes and reads a bucket itself: seconds, requests and bytes."""
