"""Five tasks of the suite that may be looked at while methods are worked on."""

import math
from typing import ClassVar

from lib.suite_base import Gauges, Range, Task, bell, clip, drift


class Antenna(Task):
    """Point a dish at a satellite that wanders over the sky, against gusts, with costly motors.

    Megabits: a beam that falls off with the distance to the moving goal, less the motors' current.
    """

    steps = 100
    gauges: ClassVar[dict[str, Range]] = {
        "azimuth [deg]": (-90.0, 90.0),
        "elevation [deg]": (0.0, 90.0),
        "azimuth rate [deg/min]": (-40.0, 40.0),
        "elevation rate [deg/min]": (-40.0, 40.0),
        "satellite azimuth [deg]": (-90.0, 90.0),
        "satellite elevation [deg]": (0.0, 90.0),
        "satellite azimuth rate [deg/min]": (-8.0, 8.0),
        "satellite elevation rate [deg/min]": (-8.0, 8.0),
        "wind [m/s]": (-20.0, 20.0),
        "receiver temperature [K]": (270.0, 310.0),
        "supply [mV]": (11_500.0, 12_500.0),
    }
    levers: ClassVar[dict[str, Range]] = {
        "azimuth current [A]": (-5.0, 5.0),
        "elevation current [A]": (-5.0, 5.0),
    }

    def begin(self) -> None:
        self.dish = [self.uniform(-40.0, 40.0), self.uniform(25.0, 65.0)]
        self.rate = [0.0, 0.0]
        self.goal = [self.uniform(-30.0, 30.0), self.uniform(30.0, 60.0)]
        self.goal_rate = [self.uniform(-3.0, 3.0), self.uniform(-2.0, 2.0)]
        self.wind, self.receiver, self.supply = 0.0, 290.0, 12_000.0

    def read(self) -> tuple[float, ...]:
        return (*self.dish, *self.rate, *self.goal, *self.goal_rate, self.wind, self.receiver, self.supply)

    def advance(self, *levers: float) -> tuple[float, bool]:
        distance = math.dist(self.dish, self.goal)
        megabits = 8.0 / (1.0 + (distance / 12.0) ** 2) - 0.15 * (abs(levers[0]) + abs(levers[1]))
        *noise, wind, warm, volt = self.normal(5)
        middle, limits = (0.0, 45.0), ((-90.0, 90.0), (0.0, 90.0))
        for axis, current in enumerate(levers):
            self.rate[axis] = 0.7 * self.rate[axis] + 2.0 * current + (0.15 * self.wind if axis == 0 else 0.0)
            self.dish[axis] = clip(self.dish[axis] + self.rate[axis], *limits[axis])
            pull = 0.01 * (middle[axis] - self.goal[axis])
            self.goal_rate[axis] = clip(0.95 * self.goal_rate[axis] + pull + 0.5 * noise[axis], -8.0, 8.0)
            self.goal[axis] = clip(self.goal[axis] + self.goal_rate[axis], *limits[axis])
        self.wind = drift(self.wind, 0.0, 0.1, 2.5 * wind)
        self.receiver = drift(self.receiver, 290.0, 0.1, 2.0 * warm)
        self.supply = drift(self.supply, 12_000.0, 0.4, 120.0 * volt)
        return megabits, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        def current(axis: str) -> float:
            ahead = gauges[f"satellite {axis} [deg]"] + 2.0 * gauges[f"satellite {axis} rate [deg/min]"]
            return 0.12 * (ahead - gauges[f"{axis} [deg]"]) - 0.3 * gauges[f"{axis} rate [deg/min]"]

        return current("azimuth") - 0.07 * gauges["wind [m/s]"], current("elevation")


class Fishery(Task):
    """Fish a lake whose young take long to grow up. Restocking costs today and feeds the nets much later.

    Thousands of euros: price x catch, less boats and fry. A collapse of the stock ends it, with a fine.
    """

    steps = 80
    gauges: ClassVar[dict[str, Range]] = {
        "adult fish [t]": (0.0, 16.0),
        "half-grown fish [t]": (0.0, 5.0),
        "young fish [t]": (0.0, 4.0),
        "price [EUR/kg]": (2.0, 8.0),
        "water temperature [K]": (275.0, 295.0),
        "weeks left": (0.0, 80.0),
        "tourists": (0.0, 3000.0),
        "lake level [mm]": (-400.0, 400.0),
    }
    levers: ClassVar[dict[str, Range]] = {"boats": (0.0, 30.0), "fry released [kg]": (0.0, 200.0)}

    def begin(self) -> None:
        self.adult = self.uniform(6.0, 12.0)
        self.half, self.young = self.uniform(1.5, 3.0), self.uniform(1.0, 2.0)
        self.price, self.water = self.uniform(4.0, 6.0), self.uniform(280.0, 290.0)
        self.tourists, self.lake = 1500.0, 0.0

    def read(self) -> tuple[float, ...]:
        stock = (self.adult, self.half, self.young)
        return (*stock, self.price, self.water, float(self.steps - self.clock), self.tourists, self.lake)

    def advance(self, *levers: float) -> tuple[float, bool]:
        boats, fry = levers
        catch = 0.008 * boats * self.adult
        money = self.price * catch - 0.05 * boats - 0.001 * fry
        price, water, tourists, lake = self.normal(4)
        born = 0.05 * self.adult * max(0.0, 1.0 - self.adult / 22.0) * bell(self.water, 285.0, 8.0)
        grown, ripe = 0.15 * self.young, 0.12 * self.half
        self.young += born + 0.0015 * fry - grown
        self.half += 1.2 * grown - ripe
        self.adult += 1.3 * ripe - 0.02 * self.adult - catch
        self.price = clip(drift(self.price, 5.0, 0.08, 0.35 * price), 2.0, 8.0)
        self.water = drift(self.water, 285.0, 0.05, 0.8 * water)
        self.tourists = drift(self.tourists, 1500.0, 0.3, 450.0 * tourists)
        self.lake = drift(self.lake, 0.0, 0.1, 50.0 * lake)
        if self.adult < 1.0:
            return money - 10.0, True
        return money, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        adult, price, left = gauges["adult fish [t]"], gauges["price [EUR/kg]"], gauges["weeks left"]
        keep = 1.5 if left < 8.0 else 5.5 - 1.0 * (price - 5.0)
        return 4.0 * (adult - keep), (200.0 if left > 35.0 else 0.0)


class Kiln(Task):
    """Fire batches of ware: each needs time inside a narrow band of temperatures, and pays when it is done.

    Euros: a bonus for each finished batch, a loss for each spoiled by heat, and gas.
    """

    steps = 120
    gauges: ClassVar[dict[str, Range]] = {
        "temperature [K]": (300.0, 1600.0),
        "wall temperature [K]": (300.0, 1400.0),
        "fired": (0.0, 1.0),
        "draught [Pa]": (0.0, 60.0),
        "oxygen [%]": (0.0, 21.0),
        "room temperature [K]": (280.0, 310.0),
        "gas heating value [kJ/m3]": (33_000.0, 39_000.0),
        "hall lights [W]": (0.0, 2000.0),
    }
    levers: ClassVar[dict[str, Range]] = {"gas [m3/h]": (0.0, 50.0), "air [m3/h]": (0.0, 600.0)}

    def begin(self) -> None:
        self.temperature, self.wall = self.uniform(600.0, 1300.0), self.uniform(700.0, 1000.0)
        self.fired, self.draught, self.oxygen = self.uniform(0.0, 0.6), 30.0, 8.0
        self.room, self.value, self.lights = 295.0, self.uniform(34_000.0, 38_000.0), 1000.0

    def read(self) -> tuple[float, ...]:
        ware = (self.temperature, self.wall, self.fired)
        return (*ware, self.draught, self.oxygen, self.room, self.value, self.lights)

    def advance(self, *levers: float) -> tuple[float, bool]:
        gas, air = levers
        burning = gas * bell(air, 11.0 * gas, 200.0) * self.value / 36_000.0
        euros = -0.012 * gas
        self.fired += 0.16 * bell(self.temperature, 1230.0, 90.0)
        if self.fired >= 1.0:
            euros += 6.0
            self.fired, self.temperature = 0.0, self.temperature - 120.0
        elif self.temperature > 1450.0:
            euros -= 3.0
            self.fired, self.temperature = 0.0, self.temperature - 250.0
        draught, warm, value, lights, heat = self.normal(5)
        exchange = 0.12 * (self.temperature - self.wall)
        self.temperature += 5.5 * burning - exchange - 0.04 * (self.temperature - self.room) + 8.0 * heat
        self.wall += 0.5 * exchange - 0.03 * (self.wall - self.room)
        self.oxygen = drift(self.oxygen, clip(0.03 * (air - 9.5 * gas), 0.0, 21.0), 0.7, 0.3 * heat)
        self.draught = drift(self.draught, 30.0, 0.3, 6.0 * draught)
        self.room = drift(self.room, 295.0, 0.05, 0.8 * warm)
        self.value = drift(self.value, 36_000.0, 0.02, 150.0 * value)
        self.lights = drift(self.lights, 1000.0, 0.5, 350.0 * lights)
        return euros, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        wall, room = gauges["wall temperature [K]"], gauges["room temperature [K]"]
        hold = (0.12 * (1230.0 - wall) + 0.04 * (1230.0 - room)) / 5.5
        gas = hold * 36_000.0 / gauges["gas heating value [kJ/m3]"] + 0.1 * (
            1230.0 - gauges["temperature [K]"]
        )
        gas = clip(gas, 0.0, 50.0)
        return gas, 11.0 * gas


class HeatPump(Task):
    """A hotel's heat pump fills a hot tank and an ice store. A flag says which of them is paid for now.

    Points: what it gives to the paid side / the electricity that it takes, less complaints on empty tanks.
    """

    steps = 96
    gauges: ClassVar[dict[str, Range]] = {
        "hot is paid": (0.0, 1.0),
        "hot tank [K]": (290.0, 350.0),
        "cold store [K]": (255.0, 295.0),
        "hot water drawn [l/min]": (0.0, 60.0),
        "cold drawn [kW]": (0.0, 12.0),
        "outside temperature [K]": (265.0, 310.0),
        "refrigerant pressure [Pa]": (400_000.0, 2_400_000.0),
        "guests": (0.0, 300.0),
        "kitchen power [kW]": (0.0, 40.0),
        "bar music [dB]": (40.0, 100.0),
    }
    levers: ClassVar[dict[str, Range]] = {"compressor [kW]": (0.5, 10.0), "share to hot": (0.0, 1.0)}

    def begin(self) -> None:
        self.flag = float(self.np_random.random() < 0.5)
        self.hot, self.cold = self.uniform(305.0, 335.0), self.uniform(265.0, 285.0)
        self.water, self.chill, self.outside = 25.0, 5.0, self.uniform(275.0, 300.0)
        self.pressure, self.guests, self.kitchen, self.music = (
            1_200_000.0,
            self.uniform(80.0, 220.0),
            18.0,
            70.0,
        )

    def read(self) -> tuple[float, ...]:
        tanks = (self.flag, self.hot, self.cold, self.water, self.chill, self.outside)
        return (*tanks, self.pressure, self.guests, self.kitchen, self.music)

    def advance(self, *levers: float) -> tuple[float, bool]:
        power, share = levers
        lift_hot = clip((self.hot - self.outside) / 100.0 + 0.1, 0.12, 1.0)
        lift_cold = clip((self.outside - self.cold) / 100.0 + 0.15, 0.12, 1.0)
        heat, frost = share * power * 0.9 / lift_hot, (1.0 - share) * power * 0.9 / lift_cold
        paid = heat if self.flag else frost
        points = 0.5 * paid / (power + 1.5)
        points -= 0.06 * max(0.0, 315.0 - self.hot) + 0.06 * max(0.0, self.cold - 280.0)
        water, chill, warm, gas, people, cook, music = self.normal(7)
        self.hot = clip(self.hot + 0.12 * heat - 0.002 * self.water * (self.hot - 285.0), 285.0, 350.0)
        self.cold = clip(
            self.cold - 0.12 * frost + 0.2 * self.chill + 0.01 * (295.0 - self.cold), 255.0, 295.0
        )
        if self.np_random.random() < 0.06:
            self.flag = 1.0 - self.flag
        self.water = clip(drift(self.water, 0.15 * self.guests, 0.15, 3.0 * water), 0.0, 60.0)
        self.chill = clip(drift(self.chill, 0.2 * (self.outside - 265.0), 0.15, 0.6 * chill), 0.0, 12.0)
        self.outside = drift(self.outside, 288.0, 0.02, 0.8 * warm)
        self.pressure = drift(self.pressure, 600_000.0 + 120_000.0 * power, 0.5, 60_000.0 * gas)
        self.guests = drift(self.guests, 150.0, 0.02, 5.0 * people)
        self.kitchen = drift(self.kitchen, 18.0, 0.2, 5.0 * cook)
        self.music = drift(self.music, 70.0, 0.4, 9.0 * music)
        return points, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        share = 1.0 if gauges["hot is paid"] > 0.5 else 0.0
        if gauges["hot tank [K]"] < 311.0:
            share = max(share, 0.7)
        if gauges["cold store [K]"] > 284.0:
            share = min(share, 0.3)
        return 6.0, share


class Crane(Task):
    """Carry a load across a yard to where the lorries stand. It swings; when it swings too far it falls.

    Points: nearness of the load to the lorry in both directions, a bonus at each delivery, a fine for a fall.
    """

    steps = 120
    gauges: ClassVar[dict[str, Range]] = {
        "trolley [m]": (0.0, 60.0),
        "trolley speed [mm/s]": (-4000.0, 4000.0),
        "swing [deg]": (-45.0, 45.0),
        "swing rate [deg/s]": (-40.0, 40.0),
        "rope [m]": (5.0, 25.0),
        "lorry [m]": (0.0, 60.0),
        "lorry bed [m]": (5.0, 25.0),
        "wind [m/s]": (-15.0, 15.0),
        "motor current [mA]": (0.0, 9000.0),
        "cabin temperature [K]": (280.0, 310.0),
    }
    levers: ClassVar[dict[str, Range]] = {"trolley drive [kN]": (-20.0, 20.0), "hoist [m/s]": (-1.0, 1.0)}

    def begin(self) -> None:
        self.x, self.speed, self.angle, self.turning = self.uniform(5.0, 55.0), 0.0, 0.0, 0.0
        self.rope, self.wind, self.current, self.cabin = self.uniform(8.0, 22.0), 0.0, 2000.0, 295.0
        self._call_lorry()

    def _call_lorry(self) -> None:
        self.lorry, self.bed = self.uniform(5.0, 55.0), self.uniform(12.0, 22.0)

    def read(self) -> tuple[float, ...]:
        swing = (math.degrees(self.angle), math.degrees(self.turning))
        place = (self.x, 1000.0 * self.speed, *swing, self.rope, self.lorry, self.bed)
        return (*place, self.wind, self.current, self.cabin)

    def advance(self, *levers: float) -> tuple[float, bool]:
        drive, hoist = levers
        load = self.x + self.rope * math.sin(self.angle)
        points = 0.6 - abs(load - self.lorry) / 25.0 - abs(self.rope - self.bed) / 20.0 - 0.01 * abs(drive)
        wind, motor, cabin = self.normal(3)
        for _ in range(2):  # half a second each
            push = 0.06 * drive - 0.15 * self.speed
            self.speed = clip(self.speed + 0.5 * push, -4.0, 4.0)
            swing = (
                -(9.81 * math.sin(self.angle) + push * math.cos(self.angle) - 0.05 * self.wind) / self.rope
            )
            self.turning = 0.9 * (self.turning + 0.5 * swing)
            self.angle += 0.5 * self.turning
            self.x += 0.5 * self.speed
        if not 0.0 <= self.x <= 60.0:
            self.x, self.speed = clip(self.x, 0.0, 60.0), 0.0
        self.rope = clip(self.rope + hoist, 5.0, 25.0)
        self.wind = drift(self.wind, 0.0, 0.1, 1.5 * wind)
        self.current = drift(self.current, 2000.0 + 250.0 * abs(drive), 0.4, 400.0 * motor)
        self.cabin = drift(self.cabin, 295.0, 0.1, 1.5 * cabin)
        load = self.x + self.rope * math.sin(self.angle)
        if abs(load - self.lorry) < 2.5 and abs(self.rope - self.bed) < 2.0 and abs(self.turning) < 0.1:
            points += 10.0
            self._call_lorry()
        if abs(self.angle) > 0.45:
            return points - 25.0, True
        return points, False

    @staticmethod
    def rule(gauges: Gauges) -> tuple[float, ...]:
        wanted = clip(0.2 * (gauges["lorry [m]"] - gauges["trolley [m]"]), -2.5, 2.5)
        drive = 5.0 * (wanted - gauges["trolley speed [mm/s]"] / 1000.0)
        return drive + 0.15 * gauges["swing rate [deg/s]"], gauges["lorry bed [m]"] - gauges["rope [m]"]
