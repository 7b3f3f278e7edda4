# ruff: noqa: E501  (C on one line reads better here)
"""Drivers beside headers as vendors write them: small stand-ins with the idioms of CMSIS and of FreeRTOS."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver

CORE = """#ifndef CORE_H
#define CORE_H
#ifdef __cplusplus
 extern "C" {
#endif
#include <stdint.h>
#if defined ( __CC_ARM )
  #error "another compiler"
#elif defined ( __GNUC__ )
  #define __ASM __asm
  #define __STATIC_INLINE static inline
  #define __STATIC_FORCEINLINE __attribute__((always_inline)) static inline
#endif
#ifdef __cplusplus
  #define __I volatile
#else
  #define __I volatile const
#endif
#define __O volatile
#define __IO volatile
#define __IM volatile const
#define _VAL2FLD(field, value) (((uint32_t)(value) << field ## _Pos) & field ## _Msk)
__STATIC_FORCEINLINE void __disable_irq(void) { __ASM volatile ("cpsid i" : : : "memory"); }
__STATIC_FORCEINLINE void __enable_irq(void) { __ASM volatile ("cpsie i" : : : "memory"); }
__STATIC_FORCEINLINE void __DSB(void) { __ASM volatile ("dsb 0xF":::"memory"); }
__STATIC_FORCEINLINE uint32_t __get_PRIMASK(void) { uint32_t r; __ASM volatile ("MRS %0, primask" : "=r" (r)); return r; }
typedef struct { __IO uint32_t ISER[8U]; uint32_t RESERVED0[24U]; __IO uint32_t ICER[8U]; } NVIC_Type;
#define NVIC_BASE (0xE000E100UL)
#define NVIC ((NVIC_Type *) NVIC_BASE)
__STATIC_INLINE void NVIC_EnableIRQ(IRQn_Type IRQn)
{
  if ((int32_t)(IRQn) >= 0) { NVIC->ISER[(((uint32_t)IRQn) >> 5UL)] = (uint32_t)(1UL << (((uint32_t)IRQn) & 0x1FUL)); }
}
#ifdef __cplusplus
}
#endif
#endif
"""
DEVICE = """#pragma once
#ifndef PART_F7
 #error "select the part first"
#endif
typedef enum { NonMaskableInt_IRQn = -14, SysTick_IRQn = -1, USART1_IRQn = 37 } IRQn_Type;
#include "core_part.h"
typedef struct { __IO uint32_t CR1; __IO uint32_t BRR; __IO uint16_t DR; uint16_t RESERVED; } USART_TypeDef;
#define PERIPH_BASE 0x40000000UL
#define USART1_BASE (PERIPH_BASE + 0x11000UL)
#define USART1 ((USART_TypeDef *) USART1_BASE)
#define USART_CR1_UE_Pos (0U)
#define USART_CR1_UE_Msk (0x1U << USART_CR1_UE_Pos)
#define SET_BIT(REG, BIT) ((REG) |= (BIT))
#define READ_REG(REG) ((REG))
#define MODIFY_REG(REG, CLEAR, SET) ((REG) = (((READ_REG(REG)) & (~(CLEAR))) | (SET)))
#define UNUSED(X) (void)X
"""
RTOS = """#ifndef INC_RTOS_H
#define INC_RTOS_H
#include <stddef.h>
#include "core_part.h"
typedef long BaseType_t;
typedef unsigned long UBaseType_t;
typedef uint32_t TickType_t;
struct QueueDefinition;
typedef struct QueueDefinition * QueueHandle_t;
#define pdFALSE ( ( BaseType_t ) 0 )
#define pdTRUE ( ( BaseType_t ) 1 )
#define portMAX_DELAY ( TickType_t ) 0xffffffffUL
#define configTICK_RATE_HZ ( ( TickType_t ) 1000 )
#define pdMS_TO_TICKS( ms ) ( ( TickType_t ) ( ( ( TickType_t ) ( ms ) * ( TickType_t ) configTICK_RATE_HZ ) / 1000UL ) )
extern void vPortEnterCritical( void );
extern void vPortExitCritical( void );
extern void vTaskDelay( const TickType_t ticks );
extern BaseType_t xQueueGenericSendFromISR( QueueHandle_t q, const void * const item, BaseType_t * const woken );
#define taskENTER_CRITICAL() vPortEnterCritical()
#define taskEXIT_CRITICAL() vPortExitCritical()
#define xQueueSendFromISR( q, item, woken ) xQueueGenericSendFromISR( ( q ), ( item ), ( woken ) )
#define portEND_SWITCHING_ISR( x ) do { if( ( x ) != pdFALSE ) { __DSB(); } } while( 0 )
#define portYIELD_FROM_ISR( x ) portEND_SWITCHING_ISR( x )
#define configASSERT( x ) if( ( x ) == 0 ) { taskENTER_CRITICAL(); for( ;; ); }
#endif
"""
DRIVER = """#include "part.h"
#include "rtos.h"
bfGroup Control { bit enable; bit receive; uint4 oversampling; };
bfGroup Serial { bfGroup Control control; uint16 divider; uint8 rse(self) data; bit w1c ready; bit bf_shared idle; };
make_device(Serial, serial, USART1_BASE);

static QueueHandle_t queue;

void serial_open(uint32_t clock, uint32_t baud)
{
    configASSERT(baud);
    taskENTER_CRITICAL();
    serial->divider = (uint16_t)(clock / baud);
    serial->control.enable = 1;
    serial->control.receive = 1;
    taskEXIT_CRITICAL();
    NVIC_EnableIRQ(USART1_IRQn);
    vTaskDelay(pdMS_TO_TICKS(5));
    SET_BIT(USART1->CR1, USART_CR1_UE_Msk);
    MODIFY_REG(serial->control.oversampling, 0x3U, 0x2U);
}

bf_interrupt_of(USART1) void USART1_IRQHandler(void)
{
    BaseType_t woken = pdFALSE;
    uint8_t c = serial->data;
    serial->ready = 1;
    xQueueSendFromISR(queue, &c, &woken);
    portYIELD_FROM_ISR(woken);
}

int serial_busy(void)
{
    const uint32_t primask = __get_PRIMASK();
    __disable_irq();
    int found = serial->control.enable && !serial->idle;
    if (!primask)
        __enable_irq();
    return found;
}
"""
FILES = {"vendor/Include/core_part.h": CORE, "vendor/Device/part.h": DEVICE, "rtos/include/rtos.h": RTOS}


@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize("suffix", ["c", "cpp"])
def test_a_driver_beside_vendor_headers(suffix: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    source = tmp_path / f"serial.bf.{suffix}"
    source.write_text(DRIVER)
    folders = tuple((tmp_path / name).parent for name in FILES)
    request = DriverRequest((source,), "serial", "mps2-an385", include_dirs=folders, defines=("PART_F7",))
    artifacts, driver = compile_driver(request)
    assert not driver.warnings
    assert {str(tmp_path / name) for name in FILES} <= set(driver.files)
    for a in artifacts:
        (tmp_path / a.name).write_bytes(a.data)
    flags = ["-mcpu=cortex-m3", "-mthumb", "-Os", "-Wall", "-Wextra", "-Werror", "-Wno-volatile", "-DPART_F7", "-c"]
    flags = [f for f in flags if suffix == "cpp" or f != "-Wno-volatile"]
    places = [word for f in folders for word in ("-I", str(f))]
    command = ["arm-none-eabi-gcc", *flags, *places, f"serial.{suffix}", "-o", "serial.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# The idioms of core_cm4.h, of a device header of the STM32F4 and of FreeRTOS' port, in our own words.
CM4 = """#ifndef __CORE_CM4_H_GENERIC
#define __CORE_CM4_H_GENERIC
#include <stdint.h>
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define __ASM __asm
#define __INLINE inline
#define __STATIC_INLINE static inline
#define __STATIC_FORCEINLINE __attribute__((always_inline)) static inline
#define __NO_RETURN __attribute__((__noreturn__))
#define __USED __attribute__((used))
#define __WEAK __attribute__((weak))
#define __PACKED __attribute__((packed, aligned(1)))
#define __PACKED_STRUCT struct __attribute__((packed, aligned(1)))
#define __ALIGNED(x) __attribute__((aligned(x)))
#define __COMPILER_BARRIER() __ASM volatile("":::"memory")
__PACKED_STRUCT T_UINT16_READ { uint16_t v; };
#define __UNALIGNED_UINT16_READ(addr) (((const struct T_UINT16_READ *)(const void *)(addr))->v)
#if (__FPU_PRESENT == 1U)
#define __FPU_USED 1U
#else
#define __FPU_USED 0U
#endif
#define __IM volatile const
#define __IOM volatile
#define __IO volatile
typedef union { struct { uint32_t _reserved0:27; uint32_t Q:1; uint32_t V:1; uint32_t C:1; uint32_t Z:1; uint32_t N:1; } b; uint32_t w; } APSR_Type;
typedef struct { __IOM uint32_t CTRL; __IOM uint32_t LOAD; __IOM uint32_t VAL; __IM uint32_t CALIB; } SysTick_Type;
#define SysTick ((SysTick_Type *) 0xE000E010UL)
__STATIC_FORCEINLINE void __set_BASEPRI(uint32_t v) { __ASM volatile ("MSR basepri, %0" : : "r" (v) : "memory"); }
__STATIC_FORCEINLINE uint32_t __LDREXW(volatile uint32_t *a) { uint32_t r; __ASM volatile ("ldrex %0, %1" : "=r" (r) : "Q" (*a)); return r; }
__STATIC_FORCEINLINE uint32_t __STREXW(uint32_t v, volatile uint32_t *a) { uint32_t r; __ASM volatile ("strex %0, %2, %1" : "=&r" (r), "=Q" (*a) : "r" (v)); return r; }
__STATIC_FORCEINLINE uint8_t __CLZ(uint32_t v) { return v == 0U ? 32U : (uint8_t)__builtin_clz(v); }
__STATIC_FORCEINLINE void __ISB(void) { __ASM volatile ("isb 0xF":::"memory"); }
#define __NOP() __ASM volatile ("nop")
#pragma GCC diagnostic pop
#endif
"""
F4 = """#ifndef __STM32F4xx_H
#define __STM32F4xx_H
#ifdef __cplusplus
extern "C" {
#endif
#define __FPU_PRESENT 1U
#include "core_cm4.h"
typedef enum { RESET = 0U, SET = !RESET } FlagStatus, ITStatus;
typedef enum { DISABLE = 0U, ENABLE = !DISABLE } FunctionalState;
#define IS_FUNCTIONAL_STATE(STATE) (((STATE) == DISABLE) || ((STATE) == ENABLE))
typedef struct { __IO uint32_t MODER; __IO uint32_t BSRR; __IO uint32_t AFR[2]; } GPIO_TypeDef;
#define GPIOA ((GPIO_TypeDef *) (0x40000000UL + 0x00020000UL))
#define SPI1_BASE (0x40000000UL + 0x00013000UL)
#define POSITION_VAL(VAL) (__CLZ(VAL))
#define ATOMIC_SET_BIT(REG, BIT) do { uint32_t v; do { v = __LDREXW((__IO uint32_t *)&(REG)) | (BIT); } while ((__STREXW(v, (__IO uint32_t *)&(REG))) != 0U); } while (0)
#define WRITE_REG(REG, VAL) ((REG) = (VAL))
#define assert_param(expr) ((expr) ? (void)0U : assert_failed((uint8_t *)__FILE__, __LINE__))
void assert_failed(uint8_t *file, uint32_t line);
__WEAK void HAL_Hook(void);
__NO_RETURN void Error_Handler(void);
extern uint32_t SystemCoreClock;
#ifdef __cplusplus
}
#endif
#endif
"""
PORT = """#ifndef PORTMACRO_H
#define PORTMACRO_H
#define portFORCE_INLINE inline __attribute__( ( always_inline ) )
#define portINLINE __inline
#define configMAX_SYSCALL_INTERRUPT_PRIORITY 80
typedef uint32_t StackType_t;
typedef long BaseType_t;
#define portNVIC_INT_CTRL_REG ( *( ( volatile uint32_t * ) 0xe000ed04 ) )
#define portYIELD() { portNVIC_INT_CTRL_REG = ( 1UL << 28UL ); __asm volatile ( "dsb" ::: "memory" ); __asm volatile ( "isb" ); }
#define portEND_SWITCHING_ISR( x ) do { if( ( x ) != 0 ) portYIELD() } while( 0 )
static portFORCE_INLINE BaseType_t xPortIsInsideInterrupt( void ) { uint32_t now; __asm volatile ( "mrs %0, ipsr" : "=r" ( now )::"memory" ); return now != 0; }
static portFORCE_INLINE uint32_t ulPortRaiseBASEPRI( void )
{
    uint32_t before, after;
    __asm volatile ( "   mrs %0, basepri   \\n"
                     "   mov %1, %2        \\n"
                     "   msr basepri, %1   \\n"
                     "   isb               \\n" : "=r" ( before ), "=r" ( after ) : "i" ( configMAX_SYSCALL_INTERRUPT_PRIORITY ) : "memory" );
    return before;
}
static portFORCE_INLINE void vPortSetBASEPRI( uint32_t mask ) { __asm volatile ( "	msr basepri, %0	" ::"r" ( mask ) : "memory" ); }
#define portSET_INTERRUPT_MASK_FROM_ISR() ulPortRaiseBASEPRI()
#define portCLEAR_INTERRUPT_MASK_FROM_ISR( x ) vPortSetBASEPRI( x )
#endif
"""
FREERTOS = """#ifndef INC_FREERTOS_H
#define INC_FREERTOS_H
#include <stddef.h>
#include <stdint.h>
#include "portmacro.h"
#define taskENTER_CRITICAL_FROM_ISR() portSET_INTERRUPT_MASK_FROM_ISR()
#define taskEXIT_CRITICAL_FROM_ISR( x ) portCLEAR_INTERRUPT_MASK_FROM_ISR( x )
#ifndef configASSERT_DEFINED
    #define configASSERT( x ) if( ( x ) == 0 ) { ulPortRaiseBASEPRI(); for( ; ; ); }
#endif
struct xSTATIC_LIST_ITEM { uint32_t xDummy2; void * pvDummy3[ 4 ]; };
typedef struct xSTATIC_LIST_ITEM StaticListItem_t;
#endif
"""
SPI = """#include "stm32f4xx.h"
#include "FreeRTOS.h"
bfGroup Control { bit CPHA; bit CPOL; bit MSTR; uint3 BR; bit SPE; };
bfGroup Spi { bfGroup Control CR1; bit ro RXNE; bit ro TXE; bit w1c OVR; uint16 rse(self) wse(self) DR; };
make_device(Spi, spi, SPI1_BASE);

static volatile uint32_t errors;
static uint8_t buffer[8] __ALIGNED(4);

void spi_open(uint32_t rate, FunctionalState state)
{
    assert_param(IS_FUNCTIONAL_STATE(state));
    configASSERT(rate);
    uint32_t scale = POSITION_VAL(SystemCoreClock / rate);
    spi->CR1.MSTR = 1;
    spi->CR1.BR = scale;
    spi->CR1.SPE = state == ENABLE ? SET : RESET;
    __COMPILER_BARRIER();
    WRITE_REG(GPIOA->BSRR, 1U << 4);
    ATOMIC_SET_BIT(GPIOA->MODER, 2U);
    SysTick->VAL = 0;
    __ISB();
}

bf_interrupt void SPI1_IRQHandler(void)
{
    uint32_t mask = taskENTER_CRITICAL_FROM_ISR();
    if (spi->RXNE)
        buffer[0] = (uint8_t)spi->DR;
    spi->OVR = 1;
    errors++;
    taskEXIT_CRITICAL_FROM_ISR(mask);
    portEND_SWITCHING_ISR(buffer[0] == 0xFF);
}

uint16_t spi_swap(uint16_t value)
{
    while (!spi->TXE)
        __NOP();
    WRITE_REG(spi->DR, value);
    if (!xPortIsInsideInterrupt() && value == __UNALIGNED_UINT16_READ(buffer + 1))
        Error_Handler();
    return (uint16_t)spi->DR;
}
"""
STM = {
    "Include/core_cm4.h": CM4,
    "Device/stm32f4xx.h": F4,
    "portable/portmacro.h": PORT,
    "include/FreeRTOS.h": FREERTOS,
}


@pytest.mark.needs("arm-none-eabi-gcc")
def test_a_driver_beside_headers_of_an_stm32f4_and_freertos(tmp_path: Path) -> None:
    """Diagnostic pragmas, packed and aligned types, unions of bits, exclusive accesses, BASEPRI, asm of some lines."""
    for name, text in STM.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "spi.bf.c").write_text(SPI)
    folders = tuple((tmp_path / name).parent for name in STM)
    request = DriverRequest((tmp_path / "spi.bf.c",), "spi", "mps2-an385", include_dirs=folders)
    artifacts, driver = compile_driver(request)
    assert not driver.warnings
    assert {str(tmp_path / name) for name in STM} <= set(driver.files)
    for a in artifacts:
        (tmp_path / a.name).write_bytes(a.data)
    flags = ["-mcpu=cortex-m4", "-mthumb", "-Os", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-c"]
    places = [word for f in folders for word in ("-I", str(f))]
    command = ["arm-none-eabi-gcc", *flags, *places, "spi.c", "-o", "spi.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    body = next(a.data.decode() for a in artifacts if a.name == "spi.c")
    opened = body[body.index("void spi_open") : body.index("SPI1_IRQHandler")]
    assert opened.count("HAL_WRITE_Spi_CR1") == 1  # three fields, one store, in front of the barrier
