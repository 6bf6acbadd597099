"""What Tally needs, checked one by one, each with what to do when it is not so."""

from tally.app.doctor.diagnosis import Diagnosis, DoctorView, Health
from tally.app.doctor.examination import doctor

__all__ = ["Diagnosis", "DoctorView", "Health", "doctor"]
