"""Checks of everything that Tally needs; a check that fails says what to do."""

from tally.app.doctor.diagnosis import Diagnosis, DoctorView, Health
from tally.app.doctor.examination import doctor

__all__ = ["Diagnosis", "DoctorView", "Health", "doctor"]
