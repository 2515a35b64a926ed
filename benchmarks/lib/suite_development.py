"""Five tasks of the suite that may be looked at while methods are worked on."""

import math
from typing import ClassVar

from lib.suite_base import Gauges, Range, Task, bell, clip, drift


class Battery(Task):
    """A battery behind a factory's meter: buy cheap, sell dear, mind the peak, the wear and the heat.

    Euros: price x power, a charge on each new peak, wear, cooling, and a fine at overheating, which ends it.
    """

    steps = 100
    gauges: ClassVar[dict[str, Range]] = {
        "sine of the hour": (-1.0, 1.0),
        "cosine of the hour": (-1.0, 1.0),
        "hours to settlement": (0.0, 25.0),
        "price [EUR/MWh]": (0.0, 220.0),
        "price in an hour [EUR/MWh]": (0.0, 220.0),
        "factory load [kW]": (0.0, 800.0),
        "charge": (0.0, 1.0),
        "cell temperature [K]": (280.0, 330.0),
        "outside temperature [K]": (280.0, 310.0),
        "peak so far [kW]": (500.0, 1200.0),
        "air pressure [hPa]": (950.0, 1050.0),
        "grid frequency [Hz]": (49.9, 50.1),
    }
    levers: ClassVar[dict[str, Range]] = {"charging power [kW]": (-400.0, 400.0), "cooling": (0.0, 1.0)}

    def begin(self) -> None:
        self.hour = self.uniform(0.0, 24.0)
        self.charge = self.uniform(0.3, 0.7)
        self.outside = self.uniform(288.0, 302.0)
        self.cell = self.outside + 3.0
        self.peak = 650.0
        self.price_noise, self.load_noise, self.pressure, self.frequency = 0.0, 0.0, 1000.0, 50.0

    def read(self) -> tuple[float, ...]:
        angle = 2 * math.pi * self.hour / 24
        time = (math.sin(angle), math.cos(angle), (self.steps - self.clock) / 4)
        market = (self._price(0.0), self._price(1.0), self._load())
        cells = (self.charge, self.cell, self.outside, self.peak)
        return (*time, *market, *cells, self.pressure, self.frequency)

    def _price(self, ahead: float) -> float:
        return 100.0 + 65.0 * math.sin(2 * math.pi * (self.hour + ahead) / 12) + self.price_noise * 0.7**ahead

    def _load(self) -> float:
        return 350.0 - 180.0 * math.cos(2 * math.pi * self.hour / 24) + self.load_noise

    def advance(self, *levers: float) -> tuple[float, bool]:
        power, cooling = levers
        room, store = (1.0 - self.charge) * 800.0, self.charge * 800.0
        power = clip(power, -store * 4 * 0.95, room * 4 / 0.95)
        bought = power / 4  # kWh
        grid = self._load() + power
        money = -self._price(0.0) * bought / 1000 - 0.008 * abs(bought) - 0.6 * cooling
        if grid > self.peak:
            money -= 0.1 * (grid - self.peak)
            self.peak = grid
        self.charge = clip(self.charge + (bought * 0.95 if bought > 0 else bought / 0.95) / 800.0, 0.0, 1.0)
        heat = 5.0 * (power / 400.0) ** 2
        self.cell += heat - 0.1 * (self.cell - self.outside) - 0.15 * cooling * (self.cell - 285.0)
        self._weather()
        overheated = self.cell > 325.0
        return money - 60.0 * overheated, overheated

    def _weather(self) -> None:
        price, load, pressure, frequency = self.normal(4)
        self.hour = (self.hour + 0.25) % 24
        self.price_noise = drift(self.price_noise, 0.0, 0.1, 6.0 * price)
        self.load_noise = drift(self.load_noise, 0.0, 0.1, 15.0 * load)
        self.pressure = drift(self.pressure, 1000.0, 0.05, 6.0 * pressure)
        self.frequency = drift(self.frequency, 50.0, 0.5, 0.03 * frequency)

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        price, spare = gauges["price [EUR/MWh]"], gauges["peak so far [kW]"] - gauges["factory load [kW]"]
        cooling = 1.0 if gauges["cell temperature [K]"] > 308.0 else 0.0
        if price > 120.0 or gauges["hours to settlement"] < 1.0:
            return -300.0, cooling
        return (min(300.0, spare) if price < 80.0 else 0.0), cooling


class Reactor(Task):
    """Grow yeast: warm but not hot, fed but not flooded, and never much gas under the lid.

    Kilograms: saturating growth inside a temperature window; losses past two thresholds; steam for heating.
    """

    steps = 80
    gauges: ClassVar[dict[str, Range]] = {
        "temperature [K]": (285.0, 335.0),
        "outside temperature [K]": (280.0, 300.0),
        "gas pressure [Pa]": (95_000.0, 125_000.0),
        "sugar [mg/l]": (0.0, 6000.0),
        "yeast [g/l]": (0.0, 12.0),
        "acidity [pH]": (3.0, 7.0),
        "stirrer vibration [mm/s]": (0.0, 8.0),
        "room humidity": (0.0, 1.0),
        "hours left": (0.0, 40.0),
    }
    levers: ClassVar[dict[str, Range]] = {
        "steam [kW]": (0.0, 10.0),
        "feed [l/h]": (0.0, 4.0),
        "vent": (0.0, 1.0),
    }

    def begin(self) -> None:
        self.outside = self.uniform(286.0, 295.0)
        self.temperature = self.uniform(295.0, 305.0)
        self.pressure = self.uniform(100_000.0, 106_000.0)
        self.sugar, self.yeast = self.uniform(500.0, 2500.0), self.uniform(2.0, 3.0)
        self.acidity, self.vibration, self.humidity = 5.0, 4.0, 0.5

    def read(self) -> tuple[float, ...]:
        vessel = (self.temperature, self.outside, self.pressure, self.sugar, self.yeast, self.acidity)
        return (*vessel, self.vibration, self.humidity, (self.steps - self.clock) / 2)

    def advance(self, *levers: float) -> tuple[float, bool]:
        steam, feed, vent = levers
        food = self.sugar / (self.sugar + 900.0)
        growth = 0.25 * self.yeast * food * bell(self.temperature, 309.0, 7.0)
        kilograms = 1.6 * growth - 0.02 * steam - 0.15 * vent
        if self.pressure > 115_000.0:
            kilograms -= 1.2
        if self.sugar > 4000.0:
            kilograms -= 0.8
        heat, outside, acid, shake, damp = self.normal(5)
        self.yeast = clip(self.yeast + growth - 0.12 * self.yeast, 0.2, 12.0)
        self.sugar = clip(self.sugar + 250.0 * feed - 450.0 * growth, 0.0, 6000.0)
        self.pressure += 2500.0 * growth - (0.05 + 0.25 * vent) * (self.pressure - 98_000.0)
        self.temperature += 0.6 * steam - 0.12 * (self.temperature - self.outside) + 0.3 * heat
        self.outside = drift(self.outside, 290.0, 0.02, 0.3 * outside)
        self.acidity = drift(self.acidity, 5.2 - 0.1 * self.yeast, 0.2, 0.1 * acid)
        self.vibration = drift(self.vibration, 4.0, 0.6, 1.2 * shake)
        self.humidity = drift(self.humidity, 0.5, 0.1, 0.07 * damp)
        return kilograms, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        steam = 0.2 * (309.0 - gauges["outside temperature [K]"]) + 0.8 * (309.0 - gauges["temperature [K]"])
        feed = 4.0 if gauges["sugar [mg/l]"] < 2500.0 else 0.0
        vent = 1.0 if gauges["gas pressure [Pa]"] > 108_000.0 else 0.0
        return steam, feed, vent


class Courier(Task):
    """Fetch a parcel at the depot, bring it to the customer, again and again, and keep clear of a lorry.

    Euros: the distance to whatever comes next (the loaded flag says what), a tip for each errand, a fine for
    a collision, which ends the day.
    """

    steps = 100
    gauges: ClassVar[dict[str, Range]] = {
        "east [m]": (0.0, 1000.0),
        "north [m]": (0.0, 1000.0),
        "speed east [m/s]": (-25.0, 25.0),
        "speed north [m/s]": (-25.0, 25.0),
        "loaded": (0.0, 1.0),
        "depot east [m]": (0.0, 1000.0),
        "depot north [m]": (0.0, 1000.0),
        "customer east [m]": (0.0, 1000.0),
        "customer north [m]": (0.0, 1000.0),
        "lorry east [m]": (0.0, 1000.0),
        "lorry north [m]": (0.0, 1000.0),
        "satellites in view": (0.0, 20.0),
        "phone battery [mV]": (3300.0, 4200.0),
    }
    levers: ClassVar[dict[str, Range]] = {
        "thrust east [N]": (-150.0, 150.0),
        "thrust north [N]": (-150.0, 150.0),
    }

    def begin(self) -> None:
        self.x, self.y = self.uniform(100.0, 900.0), self.uniform(100.0, 300.0)
        self.u, self.v, self.loaded = 0.0, 0.0, 0.0
        self.depot = self.uniform(150.0, 300.0), self.uniform(350.0, 650.0)
        self.customer = self.uniform(700.0, 850.0), self.uniform(350.0, 650.0)
        self.turn = self.uniform(0.0, 2 * math.pi)
        self.satellites, self.phone = 10.0, 4000.0
        self._drive_lorry()

    def _drive_lorry(self) -> None:
        self.turn += 0.06
        self.lorry = 500.0 + 60.0 * math.cos(self.turn), 500.0 + 250.0 * math.sin(self.turn)

    def read(self) -> tuple[float, ...]:
        moving = (self.x, self.y, self.u / 4, self.v / 4, self.loaded)
        return (*moving, *self.depot, *self.customer, *self.lorry, self.satellites, self.phone)

    def advance(self, *levers: float) -> tuple[float, bool]:
        east, north = levers
        goal = self.customer if self.loaded else self.depot
        euros = 0.2 - math.dist((self.x, self.y), goal) / 500.0
        bump_east, bump_north, sky, volts = self.normal(4)
        self.u = 0.6 * self.u + 0.25 * east + 2.0 * bump_east  # metres a step of four seconds
        self.v = 0.6 * self.v + 0.25 * north + 2.0 * bump_north
        self.x, self.y = clip(self.x + self.u, 0.0, 1000.0), clip(self.y + self.v, 0.0, 1000.0)
        self._drive_lorry()
        self.satellites = drift(self.satellites, 10.0, 0.3, 2.0 * sky)
        self.phone = clip(self.phone - 5.0 + 10.0 * volts, 3300.0, 4200.0)
        if math.dist((self.x, self.y), goal) < 120.0:
            euros += 10.0
            self.loaded = 1.0 - self.loaded
        if math.dist((self.x, self.y), self.lorry) < 50.0:
            return euros - 25.0, True
        return euros, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        goal = "customer" if gauges["loaded"] > 0.5 else "depot"
        east = 1.5 * (gauges[f"{goal} east [m]"] - gauges["east [m]"]) - 5.0 * gauges["speed east [m/s]"]
        north = 1.5 * (gauges[f"{goal} north [m]"] - gauges["north [m]"]) - 5.0 * gauges["speed north [m/s]"]
        away_east = gauges["east [m]"] - gauges["lorry east [m]"]
        away_north = gauges["north [m]"] - gauges["lorry north [m]"]
        if math.hypot(away_east, away_north) < 200.0:  # off, and round it
            east += 4.0 * away_east - 3.0 * away_north
            north += 4.0 * away_north + 3.0 * away_east
        return east, north


class Office(Task):
    """Keep two rooms at 21 degrees and the air fresh, cheaply. Every gauge that counts counts by itself.

    Euros of comfort less those of heating and of the fan: additive in gauges and levers.
    """

    steps = 96
    gauges: ClassVar[dict[str, Range]] = {
        "north room [°C]": (10.0, 32.0),
        "south room [°C]": (10.0, 32.0),
        "carbon dioxide [ppm]": (400.0, 2400.0),
        "outside [°C]": (-10.0, 15.0),
        "sunshine [W/m2]": (0.0, 800.0),
        "people": (0.0, 40.0),
        "sine of the hour": (-1.0, 1.0),
        "cosine of the hour": (-1.0, 1.0),
        "lift trips": (0.0, 30.0),
        "network traffic [Mbit/s]": (0.0, 900.0),
    }
    levers: ClassVar[dict[str, Range]] = {
        "north heater [kW]": (0.0, 8.0),
        "south heater [kW]": (0.0, 8.0),
        "fan": (0.0, 1.0),
    }

    def begin(self) -> None:
        self.hour = self.uniform(6.0, 9.0)
        self.north, self.south = self.uniform(14.0, 24.0), self.uniform(14.0, 24.0)
        self.air, self.outside = self.uniform(450.0, 1500.0), self.uniform(-5.0, 10.0)
        self.cloud, self.crowd, self.lift, self.traffic = 0.5, 0.0, 12.0, 400.0

    def _sunshine(self) -> float:
        return max(0.0, 800.0 * math.sin(math.pi * (self.hour - 6) / 13)) * clip(self.cloud, 0.0, 1.0)

    def _people(self) -> float:
        return clip(30.0 * bell(self.hour, 13.0, 5.0) + self.crowd, 0.0, 40.0)

    def read(self) -> tuple[float, ...]:
        angle = 2 * math.pi * self.hour / 24
        rooms = (self.north, self.south, self.air, self.outside, self._sunshine(), self._people())
        return (*rooms, math.sin(angle), math.cos(angle), self.lift, self.traffic)

    def advance(self, *levers: float) -> tuple[float, bool]:
        north, south, fan = levers
        euros = 2.5 - 0.3 * abs(self.north - 21.0) - 0.3 * abs(self.south - 21.0) - 0.001 * (self.air - 400.0)
        euros -= 0.04 * (north + south) + 0.5 * fan
        cloud, crowd, weather, lift, traffic = self.normal(5)
        people, leak = self._people(), 0.08 + 0.05 * fan
        self.north += 0.45 * north + 0.01 * people - leak * (self.north - self.outside)
        sun = 0.002 * self._sunshine()
        self.south += 0.45 * south + 0.01 * people + sun - leak * (self.south - self.outside)
        self.air += 8.0 * people - (0.04 + 0.3 * fan) * (self.air - 400.0)
        self.hour = (self.hour + 0.125) % 24
        self.outside = drift(self.outside, 3.0, 0.02, 0.4 * weather)
        self.cloud = drift(self.cloud, 0.5, 0.1, 0.15 * cloud)
        self.crowd = drift(self.crowd, 0.0, 0.1, 2.0 * crowd)
        self.lift = drift(self.lift, 12.0, 0.5, 5.0 * lift)
        self.traffic = drift(self.traffic, 400.0, 0.3, 120.0 * traffic)
        return euros, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        fan = clip((gauges["carbon dioxide [ppm]"] - 700.0) / 800.0, 0.0, 1.0)
        hold = (0.18 + 0.1 * fan) * (21.0 - gauges["outside [°C]"])
        north = hold + 1.5 * (21.0 - gauges["north room [°C]"])
        south = hold - 0.004 * gauges["sunshine [W/m2]"] + 1.5 * (21.0 - gauges["south room [°C]"])
        return north, south, fan


class Pump(Task):
    """Fill a water tower to a level that keeps changing, with as much water per kilowatt-hour as possible.

    Points: efficiency (hydraulic power out / electric power in), less the distance to the wanted level.
    """

    steps = 100
    gauges: ClassVar[dict[str, Range]] = {
        "pump speed [rpm]": (600.0, 3000.0),
        "valve": (0.0, 1.0),
        "flow [m3/h]": (0.0, 150.0),
        "level [m]": (0.0, 10.0),
        "wanted level [m]": (0.0, 10.0),
        "demand [m3/h]": (0.0, 120.0),
        "inlet pressure [Pa]": (90_000.0, 110_000.0),
        "motor temperature [K]": (300.0, 370.0),
        "street noise [dB]": (30.0, 90.0),
    }
    levers: ClassVar[dict[str, Range]] = {"wanted speed [rpm]": (600.0, 3000.0), "wanted valve": (0.05, 1.0)}

    def begin(self) -> None:
        self.speed, self.valve = self.uniform(1000.0, 2000.0), self.uniform(0.2, 0.8)
        self.level, self.wanted = self.uniform(3.0, 7.0), self.uniform(3.0, 7.0)
        self.aim = self.uniform(2.5, 7.5)
        self.demand, self.inlet, self.motor, self.noise = 60.0, 100_000.0, 330.0, 60.0

    def _flow(self) -> float:
        return 150.0 * (self.speed / 3000.0) * self.valve**0.5

    def read(self) -> tuple[float, ...]:
        plant = (self.speed, self.valve, self._flow(), self.level, self.wanted, self.demand)
        return (*plant, self.inlet, self.motor, self.noise)

    def advance(self, *levers: float) -> tuple[float, bool]:
        wanted_speed, wanted_valve = levers
        turning, flow = self.speed / 3000.0, self._flow() / 150.0
        head = turning**2 * (1.15 - 0.7 * self.valve**2)  # a wide valve gives pressure away
        power = 0.06 + 0.8 * turning**3
        points = 1.5 * flow * head / power - 0.35 * abs(self.level - self.wanted)
        aim, demand, inlet, motor, noise = self.normal(5)
        self.level = clip(self.level + 0.012 * (self._flow() - self.demand), 0.0, 10.0)
        self.speed += 0.5 * (wanted_speed - self.speed)
        self.valve += 0.5 * (wanted_valve - self.valve)
        if self.np_random.random() < 0.04:
            self.aim = clip(5.0 + 2.0 * aim, 2.0, 8.0)
        self.wanted += 0.15 * (self.aim - self.wanted)
        self.demand = clip(drift(self.demand, 60.0, 0.05, 4.0 * demand), 20.0, 100.0)
        self.inlet = drift(self.inlet, 100_000.0, 0.1, 1500.0 * inlet)
        self.motor = drift(self.motor, 310.0 + 45.0 * power, 0.1, 1.0 * motor)
        self.noise = drift(self.noise, 60.0, 0.4, 8.0 * noise)
        return points, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        flow = gauges["demand [m3/h]"] + 25.0 * (gauges["wanted level [m]"] - gauges["level [m]"])
        return 3000.0 * flow / 150.0 / 0.6**0.5, 0.6
