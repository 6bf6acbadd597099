"""Checks of everything that Tally needs; a check that fails says what to do."""

from tally.status.doctor.diagnosis import Diagnosis, DoctorView
from tally.status.doctor.examination import doctor
from tally.status.health import Health

__all__ = ["Diagnosis", "DoctorView", "Health", "doctor"]
