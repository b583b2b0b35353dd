"""What the operator sets while a pipeline runs: pause, rate, throttle, log level."""
