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
