"""Checks of everything that Tally needs; a check that fails says what to do."""

from tally.app.doctor.diagnosis import Diagnosis, DoctorView
from tally.app.doctor.examination import doctor
from tally.app.health import Health

__all__ = ["Diagnosis", "DoctorView", "Health", "doctor"]
