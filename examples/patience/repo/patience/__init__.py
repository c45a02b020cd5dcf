from patience.backoff import Backoff
from patience.bucket import Bucket
from patience.retry import DeadlineExceeded, retry

__all__ = ["Backoff", "Bucket", "DeadlineExceeded", "retry"]
