"""What Tally needs, checked one by one, each with what to do when it is not so."""

from tally.app.doctor.diagnosis import Diagnosis, Health
from tally.app.doctor.examination import examine

__all__ = ["Diagnosis", "Health", "examine"]
