"""Five tasks of the suite that are run once, at the end: not to be read by who works on methods."""

import math
from collections import deque
from typing import ClassVar

from lib.suite_base import Gauges, Range, Task, bell, clip, drift


class BloodBank(Task):
    """Call donors for a hospital. What is called for today lies in the store only twelve days later.

    Thousands of euros: units given and units sold, less calls; a unit short costs five times one left over.
    """

    steps = 120
    gauges: ClassVar[dict[str, Range]] = {
        "in store [units]": (0.0, 600.0),
        "arriving tomorrow [units]": (0.0, 80.0),
        "arriving within six days [units]": (0.0, 480.0),
        "on its way [units]": (0.0, 960.0),
        "needed yesterday [units]": (0.0, 120.0),
        "patients": (0.0, 800.0),
        "sine of the week": (-1.0, 1.0),
        "cosine of the week": (-1.0, 1.0),
        "cold room [mK]": (275_000.0, 281_000.0),
        "parking fees [EUR]": (0.0, 900.0),
    }
    levers: ClassVar[dict[str, Range]] = {"called for [units]": (0.0, 80.0), "sold [units]": (0.0, 40.0)}

    def begin(self) -> None:
        self.day, self.trend = float(self.np_random.integers(7)), self.uniform(28.0, 36.0)
        self.store, self.need = self.uniform(40.0, 160.0), self.trend
        self.way = deque(self.uniform(20.0, 45.0) for _ in range(12))
        self.patients, self.room, self.parking = 10.0 * self.trend, 277_000.0, 400.0

    def read(self) -> tuple[float, ...]:
        angle = 2 * math.pi * self.day / 7
        coming = (self.way[0], sum(list(self.way)[:6]), sum(self.way))
        week = (math.sin(angle), math.cos(angle))
        return (self.store, *coming, self.need, self.patients, *week, self.room, self.parking)

    def advance(self, *levers: float) -> tuple[float, bool]:
        called, sold = levers[0], min(levers[1], self.store)
        trend, need, patients, room, parking = self.normal(5)
        week = 1.0 + 0.35 * math.sin(2 * math.pi * self.day / 7)
        self.need = clip(self.trend * week + 4.0 * need, 0.0, 120.0)
        left = self.store - sold - self.need
        given, short, over = self.need + min(left, 0.0), max(-left, 0.0), max(left, 0.0)
        money = 0.05 * given + 0.005 * sold - 0.1 * short - 0.02 * over - 0.01 * called
        self.store = clip(0.98 * over + self.way.popleft(), 0.0, 600.0)
        self.way.append(called)
        self.day = (self.day + 1.0) % 7.0
        self.trend = clip(drift(self.trend, 32.0, 0.05, 1.0 * trend), 10.0, 60.0)
        self.patients = 10.0 * self.trend + 25.0 * patients
        self.room = drift(self.room, 277_000.0, 0.3, 400.0 * room)
        self.parking = drift(self.parking, 400.0, 0.4, 120.0 * parking)
        return money, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        store = gauges["in store [units]"]
        daily = 0.7 * 32.0 + 0.3 * gauges["patients"] / 10.0  # most of a crowd is gone in twelve days
        called = daily + 0.1 * (14.0 * daily - store - gauges["on its way [units]"])
        return called, store - 1.6 * daily * (1.0 + 0.35 * gauges["sine of the week"])


class Harvester(Task):
    """Cut a field of uneven corn, fast and wide where it is thin, and never choke the drum.

    Euros: speed x width x corn, less diesel, grain lost past a load and a wrong drum speed. A jam ends it,
    with a fine.
    """

    steps = 100
    gauges: ClassVar[dict[str, Range]] = {
        "speed [m/h]": (0.0, 12_000.0),
        "cutting width [m]": (0.0, 9.0),
        "corn [kg/m2]": (0.1, 1.5),
        "corn ahead [kg/m2]": (0.1, 1.5),
        "moisture [%]": (8.0, 30.0),
        "drum load": (0.0, 2.0),
        "drum [rpm]": (400.0, 1200.0),
        "oil pressure [Pa]": (150_000.0, 450_000.0),
        "cab radio [dB]": (30.0, 90.0),
        "sun height [deg]": (0.0, 60.0),
    }
    levers: ClassVar[dict[str, Range]] = {
        "throttle [%]": (0.0, 100.0),
        "wanted width [m]": (0.0, 9.0),
        "wanted drum [rpm]": (400.0, 1200.0),
    }

    def begin(self) -> None:
        self.speed, self.width, self.drum = self.uniform(2.0, 6.0), self.uniform(2.0, 5.0), 800.0
        self.corn, self.ahead = self.uniform(0.4, 1.0), self.uniform(0.4, 1.0)
        self.moisture, self.load, self.oil = self.uniform(12.0, 24.0), 0.3, 300_000.0
        self.radio, self.sun = 60.0, self.uniform(20.0, 40.0)

    def read(self) -> tuple[float, ...]:
        moving = (1000.0 * self.speed, self.width, self.corn, self.ahead, self.moisture, self.load, self.drum)
        return (*moving, self.oil, self.radio, self.sun)

    def advance(self, *levers: float) -> tuple[float, bool]:
        throttle, wanted_width, wanted_drum = levers
        cut = self.speed * self.width * self.corn
        euros = 0.08 * cut - 0.009 * throttle - 2.5 * max(0.0, self.load - 0.8)
        euros -= 0.003 * abs(self.drum - 500.0 - 20.0 * self.moisture)
        corn, wet, load, oil, radio = self.normal(5)
        feed = cut * (1.0 + 0.04 * (self.moisture - 18.0)) / 38.0
        self.load = clip(self.load + 0.4 * (feed - self.load) + 0.02 * load, 0.0, 2.0)
        self.speed += 0.4 * (0.12 * throttle * (1.0 - 0.2 * self.load) - self.speed)
        self.width += 0.5 * (wanted_width - self.width)
        self.drum += 0.4 * (wanted_drum - self.drum)
        self.corn = self.ahead
        self.ahead = clip(drift(self.ahead, 0.7, 0.08, 0.1 * corn), 0.1, 1.5)
        self.moisture = clip(drift(self.moisture, 18.0, 0.03, 0.8 * wet), 8.0, 30.0)
        self.oil = drift(self.oil, 300_000.0, 0.3, 25_000.0 * oil)
        self.radio = drift(self.radio, 60.0, 0.4, 8.0 * radio)
        self.sun = clip(self.sun - 0.15, 0.0, 60.0)
        if self.load > 1.2:
            return euros - 40.0, True
        return euros, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        moisture = gauges["moisture [%]"]
        corn = max(gauges["corn [kg/m2]"], gauges["corn ahead [kg/m2]"])
        room = 0.75 * 38.0 / (1.0 + 0.04 * (moisture - 18.0)) + 15.0 * (0.75 - gauges["drum load"])
        return 100.0 * room / (corn * 9.0) / 9.8, 9.0, 500.0 + 20.0 * moisture


class ServerFarm(Task):
    """Keep as many servers running as the traffic is worth. Starting and stopping them wears them out.

    Euros: answers, which saturate in the servers; less price x power, each server switched since, and fans.
    """

    steps = 96
    gauges: ClassVar[dict[str, Range]] = {
        "requests counted [1/min]": (0.0, 600_000.0),
        "servers on": (0.0, 120.0),
        "hall temperature [K]": (285.0, 335.0),
        "outside temperature [K]": (275.0, 305.0),
        "electricity [EUR/MWh]": (20.0, 260.0),
        "sine of the hour": (-1.0, 1.0),
        "cosine of the hour": (-1.0, 1.0),
        "disk errors": (0.0, 60.0),
        "open tickets": (0.0, 400.0),
    }
    levers: ClassVar[dict[str, Range]] = {"servers": (0.0, 120.0), "fans [%]": (0.0, 100.0)}

    def begin(self) -> None:
        self.hour, self.fashion = self.uniform(0.0, 24.0), self.uniform(-800.0, 800.0)
        self.servers, self.hall = self.uniform(20.0, 100.0), self.uniform(295.0, 305.0)
        self.outside, self.price = self.uniform(283.0, 297.0), self.uniform(60.0, 160.0)
        self.errors, self.tickets = 20.0, self.uniform(100.0, 300.0)
        self._count(0.0)

    def _count(self, noise: float) -> None:
        wave = 4000.0 - 3000.0 * math.cos(2 * math.pi * (self.hour - 3.0) / 24)
        self.counted = clip((wave + self.fashion) * (1.0 + 0.08 * noise), 200.0, 10_000.0)

    def read(self) -> tuple[float, ...]:
        angle = 2 * math.pi * self.hour / 24
        hall = (60.0 * self.counted, self.servers, self.hall, self.outside, self.price)
        return (*hall, math.sin(angle), math.cos(angle), self.errors, self.tickets)

    def advance(self, *levers: float) -> tuple[float, bool]:
        servers, fans = levers
        able = 100.0 * servers / (1.0 + math.exp((self.hall - 310.0) / 3.0))
        answered = self.counted * (1.0 - math.exp(-able / self.counted))
        euros = 0.002 * answered - self.price * 0.0005 * servers - 0.04 * abs(servers - self.servers)
        euros -= 1.5 * (fans / 100.0) ** 3
        count, fashion, warm, price, errors, tickets = self.normal(6)
        self.servers = servers
        self.hall += 0.06 * servers - (0.06 + 0.0028 * fans) * (self.hall - self.outside)
        self.hall = clip(self.hall, 285.0, 335.0)
        self.hour = (self.hour + 0.25) % 24
        self.fashion = drift(self.fashion, 0.0, 0.05, 180.0 * fashion)
        self._count(count)
        self.outside = drift(self.outside, 290.0, 0.03, 0.5 * warm)
        self.price = clip(drift(self.price, 110.0, 0.06, 12.0 * price), 20.0, 260.0)
        self.errors = drift(self.errors, 20.0, 0.4, 7.0 * errors)
        self.tickets = drift(self.tickets, 200.0, 0.05, 15.0 * tickets)
        return euros, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        counted, on = gauges["requests counted [1/min]"] / 60.0, gauges["servers on"]
        wanted = 0.8 * counted / 100.0 * math.log(0.2 / (0.0005 * gauges["electricity [EUR/MWh]"]))
        return on + 0.25 * (wanted - on), 55.0 + 4.0 * (gauges["hall temperature [K]"] - 303.0)


class SewageWorks(Task):
    """Clean a town's sewage. The bacteria need a month of air; ammonia is fined in the bathing season only.

    Points: the ratio of two flows near its best, less air and ammonia past a limit in that season. Sludge
    that is washed out ends it, with a fine.
    """

    steps = 110
    gauges: ClassVar[dict[str, Range]] = {
        "sine of the year": (-1.0, 1.0),
        "cosine of the year": (-1.0, 1.0),
        "inflow [m3/h]": (200.0, 2000.0),
        "returned sludge [m3/h]": (0.0, 1600.0),
        "sludge [mg/l]": (0.0, 8000.0),
        "ammonia [mg/l]": (0.0, 60.0),
        "air of the past month [m3/h]": (0.0, 8000.0),
        "air of a month ago [m3/h]": (0.0, 8000.0),
        "water temperature [K]": (278.0, 296.0),
        "conductivity [uS/cm]": (400.0, 1600.0),
        "laboratory [%]": (20.0, 80.0),
    }
    levers: ClassVar[dict[str, Range]] = {"air [m3/h]": (0.0, 8000.0), "return [m3/h]": (0.0, 1600.0)}

    def begin(self) -> None:
        self.year = self.uniform(0.0, 2 * math.pi)
        self.inflow, self.returned = self.uniform(600.0, 1100.0), self.uniform(400.0, 800.0)
        self.sludge, self.ammonia = self.uniform(3.0, 4.5), self.uniform(5.0, 25.0)
        self.air = deque(self.uniform(1000.0, 5000.0) for _ in range(14))
        self.conductivity, self.laboratory, self.weather = 1000.0, 50.0, 0.0

    def _water(self) -> float:
        return 287.0 - 6.0 * math.cos(self.year) + self.weather

    def read(self) -> tuple[float, ...]:
        flows = (self.inflow, self.returned, 1000.0 * self.sludge, self.ammonia)
        air = (sum(self.air) / len(self.air), sum(list(self.air)[:4]) / 4)
        time = (math.sin(self.year), math.cos(self.year))
        return (*time, *flows, *air, self._water(), self.conductivity, self.laboratory)

    def advance(self, *levers: float) -> tuple[float, bool]:
        air, wanted = levers
        points = 1.4 * bell(self.returned / self.inflow, 0.7, 0.3) - 0.00012 * air
        if math.cos(self.year) < -0.2:
            points -= 0.15 * max(0.0, self.ammonia - 9.0)
        rain, ammonia, weather, salt, people = self.normal(5)
        grown = sum(list(self.air)[:4]) / 4
        self.air.popleft()
        self.air.append(air)
        dirt = 36.0 * (1.0 - 0.95 * grown / (grown + 1200.0))
        self.ammonia = clip(drift(self.ammonia, dirt, 0.3, 1.0 * ammonia), 0.0, 60.0)
        ratio = self.returned / self.inflow
        self.sludge = clip(drift(self.sludge, 6.0 * ratio / (ratio + 0.5), 0.2, 0.0), 0.0, 8.0)
        self.returned += 0.6 * (wanted - self.returned)
        storm = 500.0 if self.np_random.random() < 0.06 else 0.0
        self.inflow = clip(drift(self.inflow, 800.0, 0.15, 60.0 * rain + storm), 200.0, 2000.0)
        self.year = (self.year + 2 * math.pi / self.steps) % (2 * math.pi)
        self.weather = drift(self.weather, 0.0, 0.2, 0.6 * weather)
        self.conductivity = drift(self.conductivity, 1000.0, 0.2, 110.0 * salt)
        self.laboratory = drift(self.laboratory, 50.0, 0.3, 7.0 * people)
        if self.sludge < 2.4:
            return points - 25.0, True
        return points, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        now = math.atan2(gauges["sine of the year"], gauges["cosine of the year"])
        bathing = math.cos(now + 2 * math.pi * 15.0 / 110.0) < -0.1  # when today's air will have worked
        return (4200.0 if bathing else 0.0), 0.7 * gauges["inflow [m3/h]"]


class Desalination(Task):
    """Press fresh water out of the sea. At times the grid pays for taking little instead, as a flag says.

    Euros: fresh water less power, or relief of the grid; a bonus for each ship that is filled, and a fine for
    burst membranes, which ends it.
    """

    steps = 100
    gauges: ClassVar[dict[str, Range]] = {
        "relief asked for": (0.0, 1.0),
        "ship at the quay": (0.0, 1.0),
        "tank [m3]": (0.0, 5000.0),
        "pressure [Pa]": (1_000_000.0, 8_000_000.0),
        "fouling": (0.0, 1.0),
        "sea salt [mg/l]": (30_000.0, 42_000.0),
        "town's demand [m3/h]": (0.0, 120.0),
        "sea temperature [K]": (280.0, 302.0),
        "chlorine [ug/l]": (0.0, 600.0),
        "quay wind [m/s]": (-15.0, 15.0),
    }
    levers: ClassVar[dict[str, Range]] = {"wanted pressure [bar]": (10.0, 80.0), "flushing [%]": (0.0, 100.0)}

    def begin(self) -> None:
        self.relief, self.ship = float(self.np_random.random() < 0.3), 0.0
        self.tank, self.pressure = self.uniform(1500.0, 3000.0), self.uniform(30.0, 50.0)
        self.fouling, self.salt = self.uniform(0.1, 0.3), self.uniform(34.0, 38.0)
        self.town, self.sea, self.chlorine, self.wind = 50.0, self.uniform(285.0, 297.0), 250.0, 0.0

    def read(self) -> tuple[float, ...]:
        plant = (self.relief, self.ship, self.tank, 100_000.0 * self.pressure, self.fouling)
        sea = (1000.0 * self.salt, self.town, self.sea)
        return (*plant, *sea, self.chlorine, self.wind)

    def advance(self, *levers: float) -> tuple[float, bool]:
        wanted, flushing = levers
        pressed = 9.0 * max(0.0, self.pressure - 0.8 * self.salt) * (1.0 - self.fouling)
        fresh = pressed * (1.0 - flushing / 100.0)
        relief, trade = 1.5 - 0.05 * (self.pressure - 10.0), 0.02 * fresh - 0.02 * self.pressure
        euros = relief if self.relief else trade
        town, salt, sea, chlorine, wind, dirt = self.normal(6)
        self.fouling += 0.00015 * pressed + 0.004 * dirt - 0.0035 * flushing * self.fouling
        self.fouling = clip(self.fouling, 0.0, 1.0)
        self.tank = clip(self.tank + fresh - self.town, 0.0, 5000.0)
        self.pressure += 0.5 * (wanted - self.pressure)
        if self.ship and self.tank > 3500.0:
            euros += 15.0
            self.ship, self.tank = 0.0, self.tank - 2000.0
        elif not self.ship and self.np_random.random() < 0.06:
            self.ship = 1.0
        if self.np_random.random() < (0.15 if self.relief else 0.05):
            self.relief = 1.0 - self.relief
        self.town = clip(drift(self.town, 50.0, 0.1, 6.0 * town), 0.0, 120.0)
        self.salt = clip(drift(self.salt, 36.0, 0.05, 0.4 * salt), 30.0, 42.0)
        self.sea = drift(self.sea, 291.0, 0.03, 0.4 * sea)
        self.chlorine = drift(self.chlorine, 250.0, 0.3, 60.0 * chlorine)
        self.wind = drift(self.wind, 0.0, 0.2, 2.5 * wind)
        if self.pressure * (1.0 + self.fouling) > 82.0:
            return euros - 30.0, True
        return euros, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        fouling = gauges["fouling"]
        if gauges["relief asked for"] > 0.5:
            return 10.0, 60.0
        return min(70.0, 75.0 / (1.0 + fouling)), clip(150.0 * (fouling - 0.15), 0.0, 40.0)
